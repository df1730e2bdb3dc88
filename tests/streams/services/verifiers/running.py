"""Forked branches put into the log as the runner and the live worker leave them, and verifiers on them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents.fork.runner import opening
from agents.fork.task import Task
from agents.fork.task_adapter import SAMPLES, overlays
from agents.workspace.files import File, Files
from agents.workspace.snapshot import TakenOf
from schemas.branches import BranchRecord
from schemas.events import Workspace
from schemas.lifecycle import Lifecycle
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_admin, start_producer
from streams.log.topic_setup import ensure_topics
from streams.log.topics import BRANCHES, BY_RECORD, Topic
from streams.services.fork.fork_setup import snapshot_store
from tests.live import Worker, codec_of, records_of, until, until_records

Run = Callable[..., Awaitable[None]]


def with_state(settings: Settings, tmp_path: Path, **verifier: Any) -> Settings:
    """Settings with snapshots and sandboxes of the test's own."""
    fork = settings.fork.model_copy(update={"snapshots": tmp_path / "snapshots", "sandboxes": tmp_path / "sandboxes"})
    return settings.model_copy(update={"fork": fork, "verifier": settings.verifier.model_copy(update=verifier)})


class VerifierProcess(Worker):
    """`braid build-verifier` or `braid visual-verifier`."""

    def __init__(self, settings: Settings, log: Path, command: str, *flags: str, **env: str) -> None:
        places = {
            "BRAID_FORK__SNAPSHOTS": str(settings.fork.snapshots),
            "BRAID_FORK__SANDBOXES": str(settings.fork.sandboxes),
        }
        super().__init__(settings, log, **(places | env))
        self.words = (command, *flags)


@asynccontextmanager
async def verifying(run: Run, settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    """A verifier in this process; it is told to stop at the end, and what made it fail is raised."""
    stop = asyncio.Event()

    async def running() -> None:
        await run(settings, stop=stop)

    task = asyncio.create_task(running())
    try:
        yield task
    finally:
        stop.set()
        await task


def solved(task: Task, overlay: str = "solution", **changed: str) -> dict[str, File]:
    """A sample's files with one of the solutions kept with it, and files that are changed beyond it (`__` for a dot)."""
    return {**task.start, **overlays(SAMPLES / task.name)[overlay]} | {
        name.replace("__", "."): File(text.encode()) for name, text in changed.items()
    }


def branch_of(
    rollout_id: str, index: int, workspace: Workspace | None, status: str = "answered", attempt: int = 0
) -> BranchRecord:
    """A branch that ended, as the live worker announces it."""
    return BranchRecord.model_validate(
        {
            "record_id": f"{rollout_id}-{index}-{attempt}", "rollout_id": rollout_id, "task": "t", "branch_index": index,
            "attempt": attempt, "status": status, "n_events": 1, "raw_digest": "0" * 64, "workspace": workspace,
        }
    )  # fmt: skip


async def put_fork(
    settings: Settings, task: Task, rollout_id: str, branches: Mapping[int, Files]
) -> list[BranchRecord]:
    """A rollout that was opened by the runner, with branches that left these files."""
    store = snapshot_store(settings)
    records = [
        branch_of(rollout_id, index, store.keep(files, TakenOf(rollout_id, index))) for index, files in branches.items()
    ]
    await put(settings, [Lifecycle(opened=opening(task, rollout_id, max(1, len(branches)), {})), *records])
    return records


async def put(settings: Settings, records: list[Any]) -> None:
    """Write records to their topics."""
    await ensure_topics(settings)
    codec = await codec_of(settings)
    producer = await start_producer(settings)
    try:
        for record in records:
            inner = (record.opened or record.cancelled) if isinstance(record, Lifecycle) else record
            inner = getattr(record, "settled", None) or inner
            await producer.send_and_wait(
                settings.prefix + BY_RECORD[type(record)].name,
                codec.encode(record),
                key=inner.rollout_id.encode(),
                partition=partition_of(inner.rollout_id, settings.partitions),
            )
    finally:
        await producer.stop()
        await asyncio.sleep(0)


async def until_verdicts(settings: Settings, topic: Topic, count: int, deadline_s: float = 120.0) -> list[Any]:
    """Wait for so many records of a topic of verdicts."""
    await until_records(settings, topic, count, deadline_s)
    return await records_of(settings, topic)


async def until_committed(settings: Settings, kind: str, count: int) -> None:
    """Wait until a group has finished with so many branches."""
    admin = await start_admin(settings)

    async def enough() -> bool:
        found = await admin.list_consumer_group_offsets(settings.verifier_group(kind))
        return sum(max(0, each.offset) for tp, each in found.items() if tp.topic.endswith(BRANCHES.name)) >= count

    try:
        await until(enough, f"{count} branches committed", 60.0)
    finally:
        await admin.close()
