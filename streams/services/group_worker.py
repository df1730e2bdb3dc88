"""A worker on one topic: takes records, works on several at once, writes the results, and only then commits.

A plain consumer in a group of its own, not an agent of the live worker's framework: nothing is folded here and there is
no table, but a piece of work takes seconds (a model's answer, a test run) and pieces end in any order, and an offset
may only be committed when all results of its record are acknowledged. Polling continues while work is slow (partitions
are paused, and the group does not wait). Existing results in the log are read before the first piece of a partition is
taken, so a worker that was killed repeats at most its running work.
"""

import asyncio
import signal
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from schemas.base import Record
from schemas.closures import Closure, RolloutSettled
from schemas.errors import DecodeError
from streams.cluster.connections import ClusterError, client_options
from streams.log.facts import read_record
from streams.log.headers import identity
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.letters import bury, letter_of
from streams.log.record import consumed
from streams.log.topics import CLOSURES, Topic
from streams.services.slot import Slot, claimed, name_of

POLL_MS = 200
IN_HAND = 4
"""Queued records for each piece of work that may run at once; with more, partitions are paused."""

REMEMBERED = 100_000
"""Decisions kept for a partition: if more arrive while some work waits, that work may be done needlessly, which is
harmless.
"""

log = structlog.get_logger()


class Recent(dict[str, None]):
    """The ids that were added last."""

    def add(self, name: str) -> None:
        """Add an id, and drop the oldest one if there are too many."""
        self[name] = None
        if len(self) > REMEMBERED:
            del self[next(iter(self))]


class Held:
    """One partition, from its assignment until it is revoked."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.lost = False
        """Another worker has it now: no new work is begun for it."""
        self.is_loaded = False
        self.written: set[str] = set()
        """Ids of results in the log: they are not made again."""
        self.settled = Recent()
        """Rollouts that have settled: new verdicts about them would be late."""
        self.closed = Recent()
        """Rollouts that have closed: new votes about them would be late."""
        self._under_way: dict[int, None] = {}
        self._next: int | None = None

    def begin(self, offset: int) -> None:
        """A record is being worked on."""
        self._under_way[offset] = None
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """Mark a record as finished: all its results are acknowledged."""
        self._under_way.pop(offset, None)

    @property
    def commit_point(self) -> int | None:
        """The offset up to which everything is finished; None before the first record."""
        return next(iter(self._under_way), self._next)


class Role(NamedTuple):
    """A kind of worker, for the group."""

    name: str
    """For people."""
    topic: Topic
    """The topic of its work."""
    known: tuple[Topic, ...]
    """The topics of its results, and of the closures that make further work useless."""
    group: str
    slot: int
    parallel: int
    """Pieces of work that run at once."""
    grace_s: float
    """How long running work may still take when the worker is stopped."""
    look_back_ms: int
    """Results in the log are read from this long before the first record on."""
    ready: str = "ready"
    """The log message when the group has given it its share."""


class GroupWorker(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Works on the records of its partitions until `stopping` is set."""

    def __init__(self, role: Role, writer: FactWriter) -> None:
        self.settings = writer.settings
        self.role = role
        self.stopping = asyncio.Event()
        self.is_ready = False
        """Whether the group has assigned partitions to us."""
        self._codec = writer.codec
        self._writer = writer
        self._held: dict[int, Held] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._committed: dict[int, int] = {}
        self._failure: BaseException | None = None
        self.slot: Slot | None = None

    @abstractmethod
    async def do(self, held: Held, record: Any, stored: Any) -> bool:
        """Work on a record, `stored` in the log; return True if all its results are acknowledged, False to leave it to
        others.
        """

    def is_written(self, found: Record) -> bool:  # noqa: ARG002 - all of it, unless a worker knows better
        """Whether a record in the log makes it unnecessary to make it again."""
        return True

    async def let_go(self) -> None:
        """Called last, when no work is running any more."""

    def settled(self, held: Held, settled: RolloutSettled) -> None:
        """Called when a rollout of a partition has settled."""

    async def tick(self, consumer: AIOKafkaConsumer, decisions: AIOKafkaConsumer) -> None:
        """Called between two polls."""

    # -- the group -----------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Running work is finished and written; new work belongs to the next owner."""
        self.is_ready = False
        for tp in revoked:
            held = self._held.pop(tp.partition, None)
            self._committed.pop(tp.partition, None)
            if held is not None:
                held.lost = True

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Partitions are ours, from their commits on."""
        for tp in assigned:
            self._held[tp.partition] = Held(tp.partition)
        self.is_ready = True
        log.info(self.role.ready, partitions=sorted(self._held), worker=self.role.name)
        if self.slot is not None:
            await self.slot.remember()

    async def run(self, consumer: AIOKafkaConsumer, decisions: AIOKafkaConsumer) -> None:
        """Poll, work, commit; `decisions` reads settlings and closings. Raises the unexpected error of a
        piece of work.
        """
        while not self.stopping.is_set():
            found = await consumer.getmany(timeout_ms=POLL_MS)
            await self._hear(decisions)
            ours = [(self._held[tp.partition], records) for tp, records in found.items() if tp.partition in self._held]
            fresh = [held for held, _ in ours if not held.is_loaded]
            if fresh:
                await self._load(fresh, min(records[0].timestamp for _, records in ours))
            for held, records in ours:
                for record in records:
                    await self._take(held, record)
            await self.tick(consumer, decisions)
            self._hold_back(consumer)
            await self._commit(consumer)
        if self._work:
            await asyncio.wait(self._work, timeout=self.role.grace_s)
        await self._commit(consumer)
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self.let_go()
        if self._failure is not None:
            raise self._failure

    def _hold_back(self, consumer: AIOKafkaConsumer) -> None:
        """Stop fetching while enough records are queued. Polling continues, so the group never waits for slow work."""
        assigned = consumer.assignment()
        with suppress(IllegalStateError):  # revoked at this very moment
            if len(self._work) >= IN_HAND * self.role.parallel:
                consumer.pause(*assigned)
            elif consumer.paused():
                consumer.resume(*assigned)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        due = {partition: held.commit_point for partition, held in self._held.items()}
        changed = {
            TopicPartition(self.settings.prefix + self.role.topic.name, partition): offset
            for partition, offset in due.items()
            if offset is not None and self._committed.get(partition) != offset
        }
        if not changed:
            return
        try:
            await consumer.commit(changed)
        except KafkaError as error:  # a late commit is always safe: results that are in the log already are skipped
            log.warning("not committed", error=str(error))
            return
        self._committed.update({tp.partition: offset for tp, offset in changed.items()})

    # -- what comes in -------------------------------------------------------------------------------------------------

    async def _load(self, held: Iterable[Held], since: int) -> None:
        """Read the existing results of partitions, so that no work is repeated or useless."""
        by_partition = {each.partition: each for each in held}
        async with KafkaReader(self.settings) as kafka:
            spans = await kafka.spans(self.role.known, since=since - self.role.look_back_ms)
            ours = {
                name: {number: span for number, span in parts.items() if number in by_partition}
                for name, parts in spans.items()
            }
            async for placed in kafka.read(ours):
                with suppress(DecodeError):  # the live worker makes a dead letter of it
                    self._note(by_partition[placed.partition], await kafka.decode(placed))
        for each in by_partition.values():
            each.is_loaded = True

    async def _hear(self, decisions: AIOKafkaConsumer) -> None:
        """Read new closures: waiting work may be useless by now.

        Closures of a partition are followed from its assignment on, before its existing records are read, so that none
        is missed.
        """
        topic = self.settings.prefix + CLOSURES.name
        wanted = {TopicPartition(topic, partition) for partition in self._held}
        known = decisions.assignment()
        if known != wanted:
            kept = {tp: await decisions.position(tp) for tp in wanted & known}
            decisions.assign(wanted)
            for tp, position in kept.items():
                decisions.seek(tp, position)
            await decisions.seek_to_end(*wanted - known)
        for tp, records in (await decisions.getmany(timeout_ms=0)).items() if wanted else ():
            for record in records:
                with suppress(DecodeError):  # the live worker makes a dead letter of it
                    await self._codec.prepare([record.value])
                    closure = read_record(self._codec, CLOSURES, record.key, record.value)
                    if tp.partition in self._held:  # otherwise it was revoked in the meantime
                        self._note(self._held[tp.partition], closure)

    def _note(self, held: Held, found: Record) -> None:
        if not isinstance(found, Closure):
            if self.is_written(found):
                held.written.add(identity(found))
        elif found.settled is not None:
            held.settled.add(found.settled.rollout_id)
            self.settled(held, found.settled)
        elif found.closed is not None:
            held.closed.add(found.closed.rollout_id)

    async def _take(self, held: Held, record: Any) -> None:
        held.begin(record.offset)
        try:
            await self._codec.prepare([record.value])
            value = read_record(self._codec, self.role.topic, record.key, record.value)
        except DecodeError as error:
            kind = type(error).__name__
            letter = letter_of(record.topic, record.partition, consumed(record), "undecodable", str(error), kind)
            await bury(letter, self.settings.prefix, self._writer.put)
            held.finish(record.offset)
            return
        task = asyncio.create_task(self._do(held, record, value))
        self._work.add(task)
        task.add_done_callback(self._done)

    async def _do(self, held: Held, record: Any, value: Record) -> None:
        if await self.do(held, value, record):
            held.finish(record.offset)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()
            self.stopping.set()

    # -- what goes out -------------------------------------------------------------------------------------------------

    async def write(self, record: Record) -> None:
        """Write a record about a rollout; acknowledged when this returns."""
        await self._writer.append(record)


async def run_in_group(worker: GroupWorker, stop: asyncio.Event | None = None) -> None:
    """Run a worker until a signal (or `stop`) ends it. Raises SlotTakenError if another worker holds its slot."""
    if stop is not None:
        worker.stopping = stop
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT) if stop is None else ():
        with suppress(NotImplementedError, RuntimeError):
            running.add_signal_handler(number, worker.stopping.set)
    async with claimed(worker.settings, worker.role.group, worker.role.slot) as slot:
        worker.slot = slot
        await _run(worker)


async def _run(worker: GroupWorker) -> None:
    settings, role = worker.settings, worker.role
    consumer = AIOKafkaConsumer(
        **client_options(settings),
        group_id=role.group,
        group_instance_id=name_of(role.group, role.slot),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=round(settings.worker.session_timeout_s * 1000),
        heartbeat_interval_ms=round(min(3.0, settings.worker.session_timeout_s / 5) * 1000),
        max_poll_records=IN_HAND * role.parallel,
    )
    decisions = AIOKafkaConsumer(**client_options(settings), enable_auto_commit=False)
    log.info("starting", worker=role.name, kafka=settings.kafka, group=role.group)
    try:
        consumer.subscribe([settings.prefix + role.topic.name], listener=worker)
        await decisions.start()
        await consumer.start()
        await worker.run(consumer, decisions)
        log.info("stopped", worker=role.name)
    except KafkaError as error:
        raise ClusterError(f"Kafka at {settings.kafka}: {error}; `braid doctor` says more") from error
    finally:
        await consumer.stop()
        await decisions.stop()
