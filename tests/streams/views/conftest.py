"""One log that has been worked on, for all looks at it: closed rollouts, an open one, and dead letters."""

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from schemas.emission import EmissionConfig, JudgeConfig
from schemas.verdicts import BuildVerdict
from streams import cli
from streams.cluster.config import Settings, WorkerConfig
from streams.cluster.connections import partition_of, start_producer
from streams.jobs.ingest import ingest_files
from streams.log.input_lines import Rejected
from streams.log.kafka_reader import KafkaReader, View
from streams.log.kafka_writer import FactWriter
from streams.log.letter_list import DeadLetter, Filters, read_letters
from streams.log.topics import BUILD_VERDICTS
from streams.services.live.live_worker import run_worker
from tests.sample.sample_lines import sample_lines

CLOSED = ("lru-cache", "csv-parser", "markdown-table")
"""Rollouts of the sample that close by themselves."""

OPEN = "half-done"
SECRET = "sk-ant-api03-" + "aB3dE5fG7h" * 9
DEADLINE_S = 60.0

Event = dict[str, object]


class Ran(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        found = orjson.loads(self.out)
        assert isinstance(found, dict)
        return found


Braid = Callable[..., Ran]


def environment(settings: Settings, **more: str) -> dict[str, str]:
    """The settings by which a command finds a cluster."""
    return {
        "BRAID_KAFKA": settings.kafka,
        "BRAID_REGISTRY": settings.registry,
        "BRAID_PREFIX": settings.prefix,
        "BRAID_PARTITIONS": str(settings.partitions),
        **more,
    }


@pytest.fixture
def braid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Braid:
    """Run a command in this process, as `braid` does, with these settings and nothing else from the environment."""

    commands = cli.app

    def run(settings: Settings | None, *words: str, **more: str) -> Ran:
        for name in [name for name in os.environ if name.startswith("BRAID_")]:
            monkeypatch.delenv(name)
        for name, value in (environment(settings, **more) if settings else more).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(cli, "app", lambda: commands(list(words), result_action="return_value"))
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        shown = capsys.readouterr()
        return Ran(code, shown.out, shown.err)

    return run


def event(branch: int, seq: int, kind: str, **data: object) -> Event:
    """An event line of the open rollout."""
    body = {"channel": "text", "event": kind, "data": data, "timestamp_ms": 1_768_467_600_000 + seq}
    return {"type": "event", "rollout_id": OPEN, "branch_index": branch, "seq": seq, "event": body}


def open_lines() -> list[Event]:
    """A rollout of four branches: one has answered, one runs, one has a gap, one was never heard of."""
    failed = {"type": "build", "rollout_id": OPEN, "branch_index": 0, "status": "failure", "exit_code": 1}
    task = "Fix \x1b[31mred [bold]tape[/bold] for bob@example.com"
    return [
        {"type": "rollout", "rollout_id": OPEN, "task": task, "branches": 4, "required": ["build", "lint"]},
        event(0, 0, "run_start", task="Fix it"),
        event(0, 1, "final_answer", answer=f"done, the key is {SECRET}"),
        event(1, 0, "run_start", task="Fix it"),
        event(2, 0, "run_start", task="Fix it"),
        event(2, 3, "error", error="boom"),
        {**failed, "stderr": {"text": f"first\nAssertionError: {SECRET}\n", "digest": "d"}},
    ]


@pytest.fixture(scope="package")
def looked(cluster: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The settings of that log; its worker has stopped."""
    folder = tmp_path_factory.mktemp("looked")
    settings = cluster.model_copy(update={"prefix": f"look{uuid.uuid4().hex[:8]}.", "partitions": 4})
    lines = [line for line in sample_lines() if line["rollout_id"] in CLOSED] + open_lines()
    sample = folder / "sample.ndjson"
    sample.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    asyncio.run(ingest_files([sample], settings, Rejected(None), close=False))
    with contextlib.chdir(folder):  # where a worker runs, its library makes a folder
        asyncio.run(_work(settings))
    return settings


async def _work(settings: Settings) -> None:
    """Run a worker until it has closed what closes, and has refused what is bad."""
    update = {
        "emission": EmissionConfig(judge=JudgeConfig(kind="external")),
        "worker": WorkerConfig(session_timeout_s=6),  # the shortest that Kafka allows: a dead member holds up no other
    }
    ready, stop = asyncio.Event(), asyncio.Event()
    worker = asyncio.create_task(run_worker(settings.model_copy(update=update), ready=ready, stop=stop))
    try:
        await _until(settings, worker, lambda rows, _: all(rows.get(each) == "closed" for each in CLOSED))
        await _write_bad_facts(settings)
        await _until(
            settings, worker, lambda _, found: {each.letter.reason for each in found} >= {"late", "undecodable"}
        )
    finally:
        stop.set()
        await worker


async def _write_bad_facts(settings: Settings) -> None:
    """A verdict that comes after the closing, and bytes that are no verdict."""
    async with FactWriter(settings, "test") as writer:
        late = BuildVerdict(
            rollout_id="lru-cache", branch_index=0, verdict_id="too-late", status="failure", exit_code=1
        )
        await writer.write(late)
    producer = await start_producer(settings)
    try:
        partition = partition_of("lru-cache", settings.partitions)
        garbage = f"no Avro at all, {SECRET}".encode()
        headers = [("ce_id", b"garbage-1")]
        await producer.send_and_wait(
            settings.prefix + BUILD_VERDICTS.name, garbage, key=b"lru-cache", partition=partition, headers=headers
        )
    finally:
        await producer.stop()


async def _until(
    settings: Settings, worker: asyncio.Task[None], holds: Callable[[dict[str, str], list[DeadLetter]], bool]
) -> None:
    began = time.monotonic()
    async with KafkaReader(settings) as log:
        view = View(log)
        while True:
            await view.refresh()
            letters = await read_letters(log, Filters())
            if holds({rollout_id: row.status for rollout_id, row in view.rows.items()}, letters):
                return
            assert not worker.done()
            assert time.monotonic() - began < DEADLINE_S, f"still waiting: {view.rows} {letters}"
            await asyncio.sleep(0.1)
