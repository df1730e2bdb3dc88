"""The one crash-safe loop: the log is the state, the table is the view.

Unfinished keys are in memory only. The committed offset of a partition trails at the first record of its oldest
unfinished key, so after a crash or rebalance the log is simply read again from there. At every checkpoint, each step
awaited: the output of finished keys is acknowledged, then their marks, and only then may the commit pass them. A crash
in between repeats byte-identical records.

The driver (`Driver`) reads and writes; the loop does not know rollouts.
"""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

import faust
import mode
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types.tuples import TP

from schemas.errors import BraidError
from streams.cluster.config import Settings
from streams.cluster.connections import REQUEST_BYTES, start_consumer
from streams.log.outgoing_record import Outgoing
from streams.log.topics import MARKS_TABLE, VIEW_TABLE, Topic
from streams.services.live.seams import AckedTable, DisklessApp, SafeConsumer, SafeTransport
from streams.services.slot import name_of

BATCH = 500
"""Records folded, at most, before decisions are made and other tasks get their turn."""

QUEUED = 32
"""Polls of partitions that may wait to be folded."""

TICK_S = 0.25
"""How often deadlines are checked."""

MAX_UNSENT = 5_000
"""Unacknowledged writes before the next one waits for all of them."""

VISIBLE_MS = 200
"""Safety margin: an end offset may miss records appended up to this long before the request, because replication takes
a moment.
"""

log = structlog.get_logger()


class OffsetGapError(BraidError):
    """A record was skipped between the broker and us: never go on, be restarted and read again."""


class Arrived(NamedTuple):
    """One record from the log."""

    topic: str
    """With the prefix."""
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    at: int
    """When the log took it in: milliseconds of the broker's clock."""

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.topic}/{self.partition}@{self.offset}"


class Driver(Protocol):
    """The driver of the loop. All calls are made under one lock, from one task at a time."""

    def reset(self) -> None:
        """Forget everything: the log is read again from the commits."""

    async def prepare(self, values: list[bytes | None]) -> None:
        """Fetch everything that decoding these values needs."""

    def take(self, record: Arrived) -> str | None:
        """Fold a record; return the key that holds the commit back until it is finished, or None."""

    async def advance(self) -> None:
        """Write the results of the records since the last call, and finish the complete keys."""

    async def tick(self) -> None:
        """Look at deadlines."""


class Loop:
    """One Faust agent over all source topics of its partitions."""

    def __init__(
        self, settings: Settings, sources: Sequence[Topic], on_ready: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.settings = settings
        self._on_ready = on_ready
        self.sources = [settings.prefix + topic.name for topic in sources]
        self.app = _app(settings)
        self.app.transport = SafeTransport(self.app.conf.broker_consumer, self.app)
        self.marks: AckedTable = self._table(MARKS_TABLE)
        self.view: AckedTable = self._table(VIEW_TABLE)
        self.live = False
        self._announced = False
        self.stopping = asyncio.Event()
        self.lag: dict[str, int] = {}
        self._driver: Driver | None = None
        self._lock = asyncio.Lock()
        self._next: dict[TP, int] = {}
        self._first: dict[TP, OrderedDict[str, int]] = defaultdict(OrderedDict)
        self._seen_at: dict[TP, int] = {}
        self._committed: dict[TP, int] = {}
        self._ends: dict[TP, tuple[int, int]] = {}
        self._unsent: list[Awaitable[Any]] = []
        self._finished: list[tuple[int, str, bytes]] = []
        self._failure: BaseException | None = None
        self._scout: AIOKafkaConsumer | None = None
        channel = self.app.topic(
            *self.sources, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", acks=False
        )
        self.app.agent(channel, concurrency=1, name="fold")(self._fold)
        self.marks.on_recover(self._recovered)
        self.app.on_partitions_revoked.connect(cast("Any", self._revoked))

    def _table(self, name: str) -> AckedTable:
        table = self.app.Table(name, key_type=str, value_type=bytes, partitions=self.settings.partitions)
        return cast("AckedTable", table)

    @property
    def _consumer(self) -> SafeConsumer:
        return cast("SafeConsumer", self.app.consumer)

    # -- for the driver ------------------------------------------------------------------------------------------------

    async def send(self, record: Outgoing) -> None:
        """Write a record. The next checkpoint waits for its acknowledgement, before anything depends on it."""
        self._unsent.append(
            await self.app.producer.send(record.topic, record.key, record.value, record.partition, None, record.headers)
        )
        if len(self._unsent) >= MAX_UNSENT:
            await self._sent()

    async def _sent(self) -> None:
        """Wait until the broker has everything that was written; a failed write raises, and the worker is restarted."""
        waiting, self._unsent = self._unsent, []
        if waiting:
            await asyncio.gather(*waiting)

    def finish(self, partition: int, key: str, mark: bytes) -> None:
        """A key is finished. Its mark takes effect at once; it is written, and the commit passes the key, at the next
        checkpoint.
        """
        self.marks.rows()[key] = mark
        self._finished.append((partition, key, mark))

    def release(self, partition: int, key: str) -> None:
        """Let the commit pass a key that has nothing left to write."""
        for topic in self.sources:
            self._first[TP(topic, partition)].pop(key, None)

    def first(self, partition: int, key: str) -> tuple[str, int] | None:
        """Topic and offset of the first record of an unfinished key: in the first of the sources that has one."""
        found = ((topic, self._first[TP(topic, partition)].get(key)) for topic in self.sources)
        return next(((topic, offset) for topic, offset in found if offset is not None), None)

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that is expected."""
        return self._wanted(TP(topic, partition))

    def assigned(self) -> set[int]:
        """The partition numbers that are ours."""
        return {tp.partition for tp in self._consumer.start_at}

    async def end_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        """The current ends of partitions.

        Asked by a client of its own: on the consumer's connection the question would wait behind a fetch that waits for data.
        """
        asked = [TopicPartition(tp.topic, tp.partition) for tp in tps]
        if self._scout is None:
            self._scout = await start_consumer(self.settings)
        if set(asked) - self._scout.assignment():
            known = [
                TopicPartition(topic, partition)
                for topic in self.sources
                for partition in range(self.settings.partitions)
            ]
            self._scout.assign(known)
            self._scout.pause(*known)
        return {TP(tp.topic, tp.partition): offset for tp, offset in (await self._scout.end_offsets(asked)).items()}

    async def refresh_ends(self, partitions: Iterable[int]) -> None:
        """Fetch the ends of the source partitions, and note the time of the request."""
        asked_at = int(time.time() * 1000) - VISIBLE_MS
        tps = [TP(topic, partition) for partition in partitions for topic in self.sources]
        if tps:
            for tp, end in (await self.end_offsets(tps)).items():
                self._ends[tp] = (end, asked_at)

    def watermark(self, partition: int) -> int | None:
        """The time up to which every source topic of a partition has been read; None if it is not known."""
        lowest: int | None = None
        for topic in self.sources:
            tp = TP(topic, partition)
            end = self._ends.get(tp)
            read = self._seen_at.get(tp)
            known = None if read is None else read - 1  # another record of the same millisecond may follow
            if end is not None and self._wanted(tp) >= end[0]:
                known = end[1] if known is None else max(known, end[1])
            if known is None:
                return None
            lowest = known if lowest is None else min(lowest, known)
        return lowest

    # -- running -------------------------------------------------------------------------------------------------------

    async def run(self, driver: Driver, ready: asyncio.Event | None = None) -> None:
        """Run until `stopping` is set. Raises the error that made the worker crash."""
        self._driver = driver
        self.app.finalize()
        await self.app.start()
        self.app.producer.buffer.max_messages = 100_000
        try:
            ticking = 0.0
            while not self.stopping.is_set():
                if self.app.crashed or self._failure:
                    break
                await self._announce(ready)
                await self._wait_a_tick()
                await self._tick(checkpoint=(due := time.monotonic() - ticking >= self.settings.worker.checkpoint_s))
                if due:
                    ticking = time.monotonic()
        finally:
            async with self._lock:
                if self.live and self._failure is None and not self.app.crashed and not self.app.rebalancing:
                    with suppress(TimeoutError):  # records after the commit are read again
                        await asyncio.wait_for(self._checkpoint(), 2.0)
                self.live = False
            if self._scout is not None:
                await self._scout.stop()
            await asyncio.wait_for(self.app.stop(), 4.0)
        if self._failure is not None:
            raise self._failure
        if self.app.crashed:
            reason = getattr(self.app, "crash_reason", None)
            raise reason if isinstance(reason, BaseException) else BraidError("the worker crashed; its log says why")

    async def _announce(self, ready: asyncio.Event | None) -> None:
        """Say, once after every rebalance, that the partitions are ours and the log is being read."""
        if self.live and not self._announced and self.assigned():
            self._announced = True
            log.info("ready", partitions=sorted(self.assigned()), marks=len(self.marks.rows()))
            if ready is not None:
                ready.set()
            if self._on_ready is not None:
                await self._on_ready()

    async def _wait_a_tick(self) -> None:
        try:
            await asyncio.wait_for(self.stopping.wait(), TICK_S)
        except TimeoutError:
            return

    async def _tick(self, *, checkpoint: bool) -> None:
        if self.app.rebalancing or not self.live:
            return
        async with self._lock:
            # After a failure nothing more is committed: the interrupted records are read again.
            if self.live and not self.app.rebalancing and self._driver is not None and self._failure is None:
                await self._driver.tick()
                if checkpoint:
                    await self._checkpoint()
                    await self.refresh_ends(self.assigned())

    async def _fold(self, stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            for at in range(0, len(message.value), BATCH):
                await self._fold_some(message.tp, message.value[at : at + BATCH], message.generation_id)

    async def _fold_some(self, tp: TP, records: list[Any], generation: int) -> None:
        while self.app.rebalancing:  # noqa: ASYNC110 - Faust has a flag here, not an event
            await asyncio.sleep(0.01)
        async with self._lock:
            if self.live and self._driver is not None:
                try:
                    await self._run_batch(tp, records, generation)
                except BaseException as failure:
                    self._failure = failure
                    raise

    async def _run_batch(self, tp: TP, records: list[Any], generation: int) -> None:
        """Fold records of one partition, and write the results."""
        assert self._driver is not None
        if generation != self.app.consumer_generation_id:
            return  # from before a rebalance: they will be read again
        await self._driver.prepare([record.value for record in records])
        first, take = self._first[tp], self._driver.take
        wanted = self._wanted(tp)
        for record in records:
            if record.offset < wanted:
                continue  # it was read already
            if record.offset > wanted:
                raise OffsetGapError(
                    f"{tp.topic}/{tp.partition}: expected offset {wanted}, got {record.offset}; reading again from the commit"
                )
            wanted = self._next[tp] = record.offset + 1
            self._seen_at[tp] = record.timestamp
            held = take(_arrived(record))
            if held is not None:
                first.setdefault(held, record.offset)
        await self._driver.advance()

    def _wanted(self, tp: TP) -> int:
        offset = self._next.get(tp)
        return int(self._consumer.start_at.get(tp, 0)) if offset is None else offset

    # -- committing, rebalancing ---------------------------------------------------------------------------------------

    async def _checkpoint(self) -> None:
        """Make finished keys durable, then commit, per partition, the first record of its oldest unfinished key.

        In this order, each step awaited: the output of finished keys, their marks, the commit that passes them.
        A late commit is always safe.
        """
        finished, self._finished = self._finished, []
        await self._sent()
        for partition, key, mark in finished:
            self.marks.put(partition, key, mark)
        await self.marks.settle()
        await self.view.settle()
        for partition, key, _ in finished:
            self.release(partition, key)
        due = {tp: self._commit_point(tp, offset) for tp, offset in self._next.items()}
        changed = {tp: offset for tp, offset in due.items() if self._committed.get(tp) != offset}
        if changed and await self._consumer.commit_offsets(changed):
            self._committed.update(changed)

    def _commit_point(self, tp: TP, position: int) -> int:
        first = self._first[tp]
        return next(iter(first.values())) if first else position

    def stream_time(self, partition: int) -> int:
        """The time of the newest record read from a partition's source topics; 0 if none was read."""
        return max((at for tp, at in self._seen_at.items() if tp.partition == partition), default=0)

    def unread(self) -> int:
        """How many records had not been read at the last request of the ends."""
        return sum(max(0, end - self._wanted(tp)) for tp, (end, _) in self._ends.items())

    def trail(self) -> int:
        """How many records are between the commits and the read position: a restart reads them again."""
        return sum(position - self._commit_point(tp, position) for tp, position in self._next.items())

    def committed(self, topic: str, partition: int) -> int:
        """The committed offset, as far as we know."""
        tp = TP(topic, partition)
        return self._committed.get(tp, int(self._consumer.start_at.get(tp, 0)))

    async def _recovered(self) -> None:
        async with self._lock:
            for memory in (self._next, self._first, self._seen_at, self._committed, self._ends):
                memory.clear()
            self._unsent, self._finished = [], []
            self.view.rows().clear()  # only written here; people read its changelog
            if self._driver is not None:
                self._driver.reset()
            self.live = True
            self._announced = False

    async def _revoked(self, _app: Any, _partitions: set[TP], **_: Any) -> None:
        async with self._lock:
            self.live = False


def _arrived(record: Any) -> Arrived:
    return Arrived(
        record.topic, record.partition, record.offset, record.key, record.value, tuple(record.headers), record.timestamp
    )


def _app(settings: Settings) -> faust.App:
    worker = settings.worker
    slot = name_of(settings.group, worker.slot)
    security = settings.security
    credentials: Any = None
    if security.protocol.startswith("SASL"):
        credentials = faust.SASLCredentials(
            username=security.username, password=security.password.get_secret_value(),
            mechanism=security.mechanism, ssl_context=security.ssl_context(),
        )  # fmt: skip
    elif security.protocol == "SSL":
        credentials = faust.SSLCredentials(security.ssl_context())
    return DisklessApp(
        settings.group,
        broker=[f"kafka://{server}" for server in settings.kafka.split(",")],
        broker_credentials=credentials,
        store="memory://",
        Table=AckedTable,
        version=1,
        autodiscover=False,
        loghandlers=[],
        logging_config=None,
        web_enabled=False,
        web_in_thread=False,
        # Static membership needs a name that a restarted worker has again.
        canonical_url=f"http://{slot}:6066",
        consumer_group_instance_id=slot,
        topic_partitions=settings.partitions,
        topic_replication_factor=settings.replication,
        topic_allow_declare=True,
        topic_disable_leader=True,
        reply_create_topic=False,
        table_standby_replicas=0,
        agent_supervisor=mode.CrashingSupervisor,
        broker_session_timeout=worker.session_timeout_s,
        broker_heartbeat_interval=max(0.3, min(2.0, worker.session_timeout_s / 5)),
        broker_request_timeout=40.0,
        broker_rebalance_timeout=30.0,
        broker_max_poll_records=2000,
        consumer_max_fetch_size=worker.fetch_bytes,
        producer_linger=0.02,
        producer_max_batch_size=256 * 1024,
        producer_acks=-1,
        producer_compression_type="lz4",
        producer_request_timeout=30.0,
        producer_max_request_size=REQUEST_BYTES,
        stream_buffer_maxsize=QUEUED,
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        stream_publish_on_commit=False,
    )
