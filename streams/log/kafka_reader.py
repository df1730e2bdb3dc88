"""The log on Kafka: bounded reads by fetch requests, offsets and following by a consumer in no group. Nothing is written.

Partition counts are those of the topics, not the configured ones.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, partition_of, registry_of, resolve, start_consumer
from streams.log.kafka_fetch import Fetching
from streams.log.losses import Losses, Offsets, add_loss, trimmed
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader, LookError
from streams.log.record import LogRecord, Placed, Span, Spans, consumed
from streams.log.topics import CLOSURES, EVIDENCE, FACTS, VIEW_TABLE, Topic, changelog
from streams.log.view_rows import ViewRow, fold_row, read_key
from streams.log.wire import Codec

POLL_MS = 200


class KafkaReader(LogReader):
    """Reads the topics of one prefix."""

    kind = "kafka"
    grows = True

    def __init__(self, settings: Settings, say: Say = quiet) -> None:
        self.settings = resolve(settings)
        prefix = f", prefix {self.settings.prefix!r}" if self.settings.prefix else ""
        self._registry = registry_of(self.settings)
        codec = Codec(self._registry, prefix=self.settings.prefix)
        super().__init__(f"Kafka at {self.settings.kafka}{prefix}", f"kafka {self.settings.prefix!r}", codec, say)
        self.view_topic = changelog(self.settings.group, VIEW_TABLE)
        self._counts: dict[str, int] = {}
        self._held: Spans = {}
        self._client: AIOKafkaConsumer | None = None
        self._starting = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._registry is not None:
                stack.push_async_callback(self._registry.close)
            self._fetching = Fetching(self.settings, self.place, self._beginning)
            await self._fetching.start()
            stack.push_async_callback(self._fetching.stop)
            await self.look_at_topics()
            stack.push_async_callback(self._stop_consumer)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # -- topics and partitions -----------------------------------------------------------------------------------------

    async def look_at_topics(self) -> None:
        """Ask which topics there are."""
        with _plain_errors(self.settings):
            self._counts = await self._fetching.topics()

    def name(self, topic: Topic) -> str:
        """The topic's name on this cluster."""
        return self.settings.prefix + topic.name

    def partitions(self, topic: Topic) -> list[int]:
        """The partitions of a topic; empty if there is no such topic."""
        return list(range(self._counts.get(self.name(topic), 0)))

    def require(self, topic: Topic) -> None:
        """Raise LookError if there is no such topic yet."""
        if not self.partitions(topic):
            raise LookError(f"{self.place} has no topic {self.name(topic)} yet; `braid up` creates it")

    def _places(self, name: str, rollout_id: str | None) -> list[TopicPartition]:
        count = self._counts.get(name, 0)
        if rollout_id is None or not count:
            return [TopicPartition(name, number) for number in range(count)]
        return [TopicPartition(name, partition_of(rollout_id, count))]

    # -- bounded reads -------------------------------------------------------------------------------------------------

    async def spans(
        self, topics: Iterable[Topic] = FACTS, *, since: int | None = None, rollout_id: str | None = None
    ) -> Spans:
        """The offsets that the brokers have now.

        Decisions are read first, then evidence: the facts and rows that they list were in the log before them.
        """
        wanted = list(topics)
        found: Spans = {topic.name: {} for topic in wanted}
        first = [topic for topic in (CLOSURES, EVIDENCE) if topic in wanted]
        for some in (*([topic] for topic in first), [topic for topic in wanted if topic not in first]):
            places = {place: topic for topic in some for place in self._places(self.name(topic), rollout_id)}
            for place, span in (await self._spans_of(list(places), since)).items():
                found[places[place].name][place.partition] = span
        if since is None and rollout_id is None:
            self._held |= found
        return found

    def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncGenerator[list[LogRecord], None]:
        """Blocks as the brokers store them."""
        return self._fetching.blocks(self.name(topic), partition, span)

    async def _spans_of(self, places: Sequence[TopicPartition], since: int | None = None) -> dict[TopicPartition, Span]:
        if not places:
            return {}
        consumer = await self._consumer()
        # Assigned first, and paused: the client then asks about all topics at once, not one by one.
        consumer.assign(places)
        consumer.pause(*places)
        with _plain_errors(self.settings):
            first = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
            if since is not None:
                found = await consumer.offsets_for_times(dict.fromkeys(places, max(0, since)))
                first |= {place: ends[place] if at is None else at.offset for place, at in found.items()}
        return {place: Span(first[place], ends[place]) for place in places}

    async def _consumer(self) -> AIOKafkaConsumer:
        """The client that asks for offsets. It is started on demand: reading known spans does not need it."""
        async with self._starting:
            if self._client is None:
                self._client = await start_consumer(self.settings)
                await asyncio.sleep(0)  # a client that is stopped before its own tasks ran raises CancelledError
        return self._client

    async def _stop_consumer(self) -> None:
        if self._client is not None:
            await self._client.stop()

    # -- losses --------------------------------------------------------------------------------------------------------

    async def _beginning(self, place: TopicPartition) -> int:
        """The first offset that a partition has now; notes that the records before it were lost while it was read."""
        with _plain_errors(self.settings):
            first = int((await (await self._consumer()).beginning_offsets([place]))[place])
        name = place.topic.removeprefix(self.settings.prefix)
        add_loss(self.damaged, name, place.partition, f"has come to begin at offset {first} while it was read")
        return first

    def lost(self, spans: Spans, asked: Offsets | None = None, *, exact: bool = False) -> Losses:
        """Partitions that do not begin at 0: their beginning was removed, by retention or by hand."""
        return {} if exact else trimmed(spans, self._held, asked or {})

    def provenance(self, topics: Mapping[str, Any]) -> dict[str, Any]:
        """The prefix, and the schemas that records were decoded with."""
        ids = self.codec.registry_ids()
        return {"kind": self.kind, "prefix": self.settings.prefix, "topics": topics, "registry_ids": ids}

    # -- the worker's view ---------------------------------------------------------------------------------------------

    async def view_row(self, rollout_id: str) -> ViewRow | None:
        """The worker's row of a rollout."""
        rows: dict[str, ViewRow] = {}
        async for record in self._view_records(await self._spans_of(self._places(self.view_topic, rollout_id))):
            if record.key is not None and read_key(record.key) == rollout_id:
                fold_row(rows, record.key, record.value)
        return rows.get(rollout_id)

    async def rollouts(self) -> list[str]:
        """The rollouts of the worker's view."""
        view = View(self)
        await view.refresh()
        return list(view.rows)

    async def view_changes(self, read_to: dict[int, int]) -> AsyncGenerator[LogRecord, None]:
        """The changes of the worker's view behind offsets, by partition, which are moved to its end."""
        if self.view_topic not in self._counts:
            await self.look_at_topics()
        spans = {
            place: Span(max(span.start, read_to.get(place.partition, 0)), span.end)
            for place, span in (await self._spans_of(self._places(self.view_topic, None))).items()
        }
        async for record in self._view_records(spans):
            yield record
        read_to |= {place.partition: span.end for place, span in spans.items()}

    async def _view_records(self, spans: Mapping[TopicPartition, Span]) -> AsyncGenerator[LogRecord, None]:
        total, done = sum(span.end - span.start for span in spans.values()), 0
        for place, span in spans.items():
            async with aclosing(self._fetching.blocks(place.topic, place.partition, span)) as blocks:
                async for block in blocks:
                    for record in block:
                        yield record
                    done += len(block)
                    self._say("reading", min(1.0, done / total))

    # -- following -----------------------------------------------------------------------------------------------------

    async def follow(
        self, topic: Topic, *, rollout_id: str | None = None, from_beginning: bool = False
    ) -> AsyncGenerator[Placed, None]:
        """The records of a topic as they come, without an end. Records that come together are put in the order of their times."""
        self.require(topic)
        places = self._places(self.name(topic), rollout_id)
        spans, consumer = await self._spans_of(places), await self._consumer()
        consumer.assign(places)  # anew: not paused
        for place, span in spans.items():
            consumer.seek(place, span.start if from_beginning else span.end)
        key = None if rollout_id is None else rollout_id.encode()
        while True:
            with _plain_errors(self.settings):
                found = await consumer.getmany(timeout_ms=POLL_MS)
            for each in _by_time(found.values()):
                if key is None or each.key == key:
                    yield Placed(topic, each.partition, consumed(each))
            await asyncio.sleep(0)


class View:
    """The whole view of the worker, read once and then kept up to date."""

    def __init__(self, log: KafkaReader) -> None:
        self.rows: dict[str, ViewRow] = {}
        self._log = log
        self._read_to: dict[int, int] = {}

    async def refresh(self) -> None:
        """Read the changes since the last time."""
        async for record in self._log.view_changes(self._read_to):
            fold_row(self.rows, record.key, record.value)


def _by_time(batches: Iterable[Sequence[Any]]) -> list[Any]:
    # A stable sort: records of one partition and one millisecond keep their order.
    return sorted((record for batch in batches for record in batch), key=lambda record: record.timestamp)


def hush() -> None:
    """Silence the client's own log, because our errors describe the failure."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


@contextmanager
def _plain_errors(settings: Settings) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise ClusterError(f"Kafka at {settings.kafka}: {error}; `braid doctor` says more") from error
