"""Kafka, looked into: plain consumers in no group, bounded by the end offsets of the moment, nothing written.

Partition counts are those that the topics have, not those that are configured here: whoever only looks need not know.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, partition_of, registry_of, resolve, start_admin, start_consumer
from streams.log.reader import Log, LookError, Stored
from streams.log.record import Span
from streams.log.topics import VIEW_TABLE, Topic, changelog
from streams.log.view_rows import ViewRow, fold_row, read_key
from streams.log.wire import Codec

POLL_MS = 200
STALL_S = 30.0
"""A bounded read that gets nothing for this long has lost its broker."""

Say = Callable[[str, float], None]
"""Progress: what is being done, and how much of it (0..1)."""


class KafkaLog(Log):
    """The topics of one prefix."""

    def __init__(self, settings: Settings, say: Say = lambda _what, _share: None) -> None:
        self.settings = resolve(settings)
        prefix = f", prefix {self.settings.prefix!r}" if self.settings.prefix else ""
        self.place = f"Kafka at {self.settings.kafka}{prefix}"
        self.view_topic = changelog(self.settings.group, VIEW_TABLE)
        self._registry = registry_of(self.settings)
        self.codec = Codec(self._registry, prefix=self.settings.prefix)
        self._say = say
        self._counts: dict[str, int] = {}
        self._client: AIOKafkaConsumer | None = None

    async def __aenter__(self) -> Self:
        await self.look_at_topics()
        self._client = await start_consumer(self.settings)
        await asyncio.sleep(0)  # a client that is stopped before its own tasks ran raises CancelledError
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.stop()
        if self._registry is not None:
            await self._registry.close()

    @property
    def _consumer(self) -> AIOKafkaConsumer:
        assert self._client is not None
        return self._client

    # -- topics and partitions -----------------------------------------------------------------------------------------

    async def look_at_topics(self) -> None:
        """Ask which topics there are. All of them: asking for one by name can create it on some clusters."""
        admin = await start_admin(self.settings)
        try:
            with _said_plainly(self.settings):
                described = await admin.describe_topics()
        finally:
            await admin.close()
        self._counts = {each["topic"]: len(each["partitions"]) for each in described if each["error_code"] == 0}

    def name(self, topic: Topic) -> str:
        """The topic's name on this cluster."""
        return self.settings.prefix + topic.name

    def partitions(self, name: str) -> int:
        """How many partitions a topic (with its prefix) has; 0 when there is no such topic."""
        return self._counts.get(name, 0)

    def require(self, topic: Topic) -> None:
        """Raises LookError when there is no such topic yet."""
        if not self.partitions(self.name(topic)):
            raise LookError(f"{self.place} has no topic {self.name(topic)} yet; `braid up` creates it")

    def _places(self, name: str, rollout_id: str | None) -> list[TopicPartition]:
        count = self.partitions(name)
        if rollout_id is None or not count:
            return [TopicPartition(name, number) for number in range(count)]
        return [TopicPartition(name, partition_of(rollout_id, count))]

    # -- bounded reads -------------------------------------------------------------------------------------------------

    async def records(
        self, topics: Sequence[Topic], *, rollout_id: str | None = None, since: int | None = None
    ) -> AsyncGenerator[Stored, None]:
        """What stands in topics now."""
        by_name = {self.name(topic): topic for topic in topics}
        places = [place for name in by_name for place in self._places(name, rollout_id)]
        key = None if rollout_id is None else rollout_id.encode()
        async for record in self.read(await self.spans(places, since)):
            if key is None or record.key == key:
                yield _stored(by_name[record.topic], record)

    async def count(self, topics: Sequence[Topic]) -> int:
        """How many records topics hold, without reading them."""
        places = [place for topic in topics for place in self._places(self.name(topic), None)]
        return sum(span.end - span.start for span in (await self.spans(places)).values())

    async def view_row(self, rollout_id: str) -> ViewRow | None:
        """The worker's row of a rollout."""
        rows: dict[str, ViewRow] = {}
        async for record in self.read(await self.spans(self._places(self.view_topic, rollout_id))):
            if record.key is not None and read_key(record.key) == rollout_id:
                fold_row(rows, record.key, record.value)
        return rows.get(rollout_id)

    async def beginning(self, place: TopicPartition) -> int:
        """The first offset that a partition has now."""
        with _said_plainly(self.settings):
            return int((await self._consumer.beginning_offsets([place]))[place])

    async def spans(self, places: Sequence[TopicPartition], since: int | None = None) -> dict[TopicPartition, Span]:
        """What partitions hold now, from a time on."""
        if not places:
            return {}
        # Assigned first, and paused: the client then asks about all topics at once, not about one after the other.
        self._consumer.assign(places)
        self._consumer.pause(*places)
        with _said_plainly(self.settings):
            first = await self._consumer.beginning_offsets(places)
            ends = await self._consumer.end_offsets(places)
            if since is not None:
                found = await self._consumer.offsets_for_times(dict.fromkeys(places, max(0, since)))
                first |= {place: ends[place] if at is None else at.offset for place, at in found.items()}
        return {place: Span(first[place], ends[place]) for place in places}

    async def read(self, spans: Mapping[TopicPartition, Span]) -> AsyncGenerator[Any, None]:
        """The records of parts of partitions, each partition in its order. Raises ClusterError when none come any more."""
        waiting = {place for place, span in spans.items() if span.start < span.end}
        if not waiting:
            return
        total, done = sum(spans[place].end - spans[place].start for place in waiting), 0
        self._consumer.assign(list(waiting))
        for place in waiting:
            self._consumer.seek(place, spans[place].start)
        moved = time.monotonic()
        while waiting:
            with _said_plainly(self.settings):
                found = await self._consumer.getmany(*waiting, timeout_ms=POLL_MS)
            for place, records in found.items():
                for record in records:
                    if record.offset < spans[place].end:
                        yield record
                done += len(records)
            self._say("reading", min(1.0, done / total))
            # Positions, not records: the last offsets of a compacted topic may have none.
            before = len(waiting)
            waiting = {place for place in waiting if await self._consumer.position(place) < spans[place].end}
            if found or len(waiting) < before:
                moved = time.monotonic()
            elif time.monotonic() - moved > STALL_S:
                raise ClusterError(
                    f"{self.place} has not answered for {STALL_S:.0f} s, {done:,} of {total:,} records read; "
                    "is the broker well? (`braid doctor`)"
                )

    # -- following -----------------------------------------------------------------------------------------------------

    async def follow(
        self, topic: Topic, *, rollout_id: str | None = None, from_beginning: bool = False
    ) -> AsyncGenerator[Stored, None]:
        """The records of a topic as they come, without an end. What comes together is put in the order of its time."""
        self.require(topic)
        places = self._places(self.name(topic), rollout_id)
        spans = await self.spans(places)
        self._consumer.assign(places)  # anew: not paused
        for place, span in spans.items():
            self._consumer.seek(place, span.start if from_beginning else span.end)
        key = None if rollout_id is None else rollout_id.encode()
        while True:
            with _said_plainly(self.settings):
                found = await self._consumer.getmany(timeout_ms=POLL_MS)
            for record in _by_time(found.values()):
                if key is None or record.key == key:
                    yield _stored(topic, record)
            await asyncio.sleep(0)


class View:
    """The worker's view as a whole, read once and then kept up to date."""

    def __init__(self, log: KafkaLog) -> None:
        self.rows: dict[str, ViewRow] = {}
        self._log = log
        self._read_to: dict[TopicPartition, int] = {}

    @property
    def is_there(self) -> bool:
        """Whether a worker has made the view yet."""
        return self._log.partitions(self._log.view_topic) > 0

    async def refresh(self) -> None:
        """Read what has come since the last time."""
        if not self.is_there:
            await self._log.look_at_topics()
        name = self._log.view_topic
        places = [TopicPartition(name, number) for number in range(self._log.partitions(name))]
        spans = {
            place: Span(max(span.start, self._read_to.get(place, 0)), span.end)
            for place, span in (await self._log.spans(places)).items()
        }
        async for record in self._log.read(spans):
            fold_row(self.rows, record.key, record.value)
        self._read_to = {place: span.end for place, span in spans.items()}


def _by_time(batches: Iterable[Sequence[Any]]) -> list[Any]:
    # A stable sort: records of one partition and one millisecond keep their order.
    return sorted((record for batch in batches for record in batch), key=lambda record: record.timestamp)


def _stored(topic: Topic, record: Any) -> Stored:
    return Stored(
        topic, record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
    )


def hush() -> None:
    """Keep the client's own log from people: what goes wrong is said by our errors."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


@contextmanager
def _said_plainly(settings: Settings) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise ClusterError(f"Kafka at {settings.kafka}: {error}; `braid doctor` says more") from error
