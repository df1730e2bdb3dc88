"""Faults on purpose: a load goes in while workers and the broker are killed, stopped and woken; then the books are checked."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from schemas.closures import Closure, RolloutSettled
from schemas.evidence import AepRecord
from schemas.rankings import Ranking
from streams.cluster.config import Settings
from streams.cluster.connections import start_consumer
from streams.log.kafka_writer import FactWriter
from streams.log.topics import BRANCHES, CLOSURES, EVIDENCE, FACTS, RANKINGS
from tests.faults.load import Expected, Load
from tests.live import Worker, marks_of, records_of, refold, sinks_of, until

BRANCHES_TOPIC = BRANCHES.name

Fault = Callable[[], Awaitable[None]]


@dataclass
class Account:
    """The books after a run."""

    rollouts: int
    lost: int = 0
    wrong: int = 0
    mixed: int = 0
    early: int = 0
    repeated: int = 0
    different_repeats: int = 0
    unlike_refold: int = 0
    marks_rewritten: int = 0
    behind: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether nothing was lost, wrong, mixed, early, or left behind."""
        return not (
            self.lost
            or self.wrong
            or self.mixed
            or self.early
            or self.different_repeats
            or self.unlike_refold
            or self.marks_rewritten
            or self.behind
        )


class Chaos:
    """Workers that are kept running, and faults that befall them."""

    def __init__(
        self, settings: Settings, folder: Path, workers: int, seed: int, module: str | None = None, **env: str
    ) -> None:
        self.settings = settings
        self.workers = [
            Worker(settings, folder / f"worker-{slot}.log", slot=slot, module=module, **env) for slot in range(workers)
        ]
        self.counts: dict[str, int] = {}
        self._chance = random.Random(seed)

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def keep_running(self) -> None:
        """Start every process again that ended: what a supervisor does."""
        for worker in self.workers:
            if not worker.alive:
                worker.start()

    def end(self) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.signal(signal.SIGCONT)
                worker.kill()

    async def kill(self) -> None:
        """SIGKILL one worker."""
        self._count("SIGKILL")
        self._chance.choice(self.workers).kill()
        self.keep_running()

    async def zombie(self) -> None:
        """Stop one worker for longer than its session, then wake it."""
        self._count("SIGSTOP")
        worker = self._chance.choice(self.workers)
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(9)
        with suppress(ProcessLookupError):
            worker.signal(signal.SIGCONT)
        self.keep_running()

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


async def send(load: Load, settings: Settings, per_second: float, pause: asyncio.Event) -> None:
    """Write a load at a pace; waits while `pause` is set (the broker is down)."""
    began = time.monotonic()
    async with FactWriter(settings, "load") as writer:
        for number, fact in enumerate(load.facts):
            while pause.is_set():
                await asyncio.sleep(0.05)
            await writer.write(fact)
            due = began + number / per_second
            if number % 20 == 0 and time.monotonic() < due:
                await writer.flush()
                await asyncio.sleep(due - time.monotonic())
        await writer.flush()


async def audit(load: Load, settings: Settings, faults: dict[str, int], seconds: float) -> Account:
    """Compare what stands in the topics with the ledger and with a fresh fold of the log."""
    account = Account(len(load.ledger), faults=dict(faults), seconds=seconds)
    rankings = {
        record.rollout_id: record for record in await records_of(settings, RANKINGS) if isinstance(record, Ranking)
    }
    settled: dict[str, RolloutSettled] = {}
    for closure in await records_of(settings, CLOSURES):
        if isinstance(closure, Closure) and closure.settled is not None:
            settled.setdefault(closure.settled.rollout_id, closure.settled)
    digests: dict[str, dict[str, str | None]] = {}
    for record in await records_of(settings, EVIDENCE):
        if isinstance(record, AepRecord) and record.closing is None:
            digests.setdefault(record.rollout_id, {})[record.run_id.split("/b")[1].split("/")[0]] = record.raw_digest
    for rollout_id, expected in load.ledger.items():
        ranking = rankings.get(rollout_id)
        if ranking is None:
            account.lost += 1
            continue
        account.early += not _has_waited(settled.get(rollout_id), expected)
        statuses = {branch.branch_index: branch.objective_status for branch in ranking.branches}
        account.wrong += statuses != expected.statuses
        account.mixed += any(
            digests[rollout_id].get(str(branch)) != digest for branch, digest in expected.digests.items()
        )
    sinks = await sinks_of(settings)
    bodies = [found for records in sinks.bodies.values() for found in records.values()]
    account.repeated = sinks.written - len(bodies)
    account.different_repeats = sum(len(found) > 1 for found in bodies)
    folded = await refold(settings)
    for topic, records in folded.items():
        written = sinks.bodies[topic]
        account.unlike_refold += len(records.keys() - written.keys())
        if topic != BRANCHES_TOPIC:  # a branch that was replaced later had its record when it ended
            account.unlike_refold += len(written.keys() - records.keys())
        account.unlike_refold += sum(
            body not in written.get(record_id, set()) for record_id, body in records.items() if record_id in written
        )
    account.marks_rewritten = sum(len(marks) > 1 for marks in (await marks_of(settings)).values())
    account.behind = await uncommitted(settings)
    return account


def _has_waited(settled: RolloutSettled | None, expected: Expected) -> bool:
    """Whether a rollout settled with the verdicts that it awaits for every branch, or else at its deadline."""
    if not expected.awaited:
        return True
    if settled is None or expected.by_deadline:
        return settled is not None and settled.cause == "deadline"
    kinds = {branch.branch_index: branch.verdict_kinds for branch in settled.branches}
    complete = all(set(expected.awaited) <= set(kinds.get(index, ())) for index in expected.digests)
    return settled.cause == "complete" and complete


async def uncommitted(settings: Settings) -> int:
    """Records between the group's commits and the ends of the fact topics."""
    consumer = await start_consumer(settings, group_id=settings.group)
    try:
        tps = [
            TopicPartition(settings.prefix + topic.name, partition)
            for topic in FACTS
            for partition in range(settings.partitions)
        ]
        ends = await consumer.end_offsets(tps)
        committed = {tp: await consumer.committed(tp) or 0 for tp in tps}
        return sum(ends[tp] - committed[tp] for tp in tps)
    finally:
        await consumer.stop()


async def run(
    load: Load, settings: Settings, chaos: Chaos, faults: list[Fault], *, every_s: tuple[float, float], per_second: float,
    seed: int, pause: asyncio.Event | None = None, patience_s: float = 120.0,
) -> Account:  # fmt: skip
    """Send the load while faults happen one after the other; then let everything close, and audit."""
    began = time.monotonic()
    chance = random.Random(seed)
    sending = asyncio.create_task(send(load, settings, per_second, pause or asyncio.Event()))
    chaos.start()
    try:
        for fault in faults:
            await asyncio.sleep(chance.uniform(*every_s))
            await fault()
        await sending
        chaos.keep_running()
        wanted = set(load.ledger)

        async def closed() -> bool:
            chaos.keep_running()
            with suppress(KafkaError):
                return wanted <= (await marks_of(settings)).keys()
            return False

        with suppress(AssertionError):  # what is missing is in the books
            await until(closed, "everything closed", patience_s)

        async def committed() -> bool:
            return await uncommitted(settings) == 0

        with suppress(AssertionError):
            await until(committed, "everything committed", 15)
    finally:
        chaos.end()
        sending.cancel()
    return await audit(load, settings, chaos.counts, time.monotonic() - began)


def table(rows: dict[str, Account]) -> str:
    """The books as a table."""
    heads = (
        "run",
        "faults",
        "rollouts",
        "lost",
        "wrong",
        "mixed",
        "early",
        "repeats",
        "differing",
        "unlike refold",
        "marks rewritten",
        "uncommitted",
        "s",
    )
    lines = [heads]
    for name, account in rows.items():
        faults = " + ".join(f"{count} {kind}" for kind, count in sorted(account.faults.items())) or "none"
        numbers = (
            account.rollouts,
            account.lost,
            account.wrong,
            account.mixed,
            account.early,
            account.repeated,
            account.different_repeats,
            account.unlike_refold,
            account.marks_rewritten,
            account.behind,
            round(account.seconds),
        )
        lines.append((name, faults, *map(str, numbers)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
