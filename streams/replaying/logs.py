"""What is replayed: the topics of a cluster, or an archive of them on disk. Both give blocks of records, topic by topic."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.errors import BraidError
from streams.cluster import ClusterError, start_consumer
from streams.codec import Codec
from streams.config import Settings
from streams.embedded import EmbeddedLogError, LogRecord, partitions_of, place_of, read_blocks
from streams.looking.files import log_folder
from streams.looking.kafka import POLL_MS, STALL_S, KafkaLog, Span
from streams.registry import Registry
from streams.topics import FACTS, Topic

MANIFEST = "log-manifest.json"
"""Beside a log in files: what it holds and where that came from. An exported dataset has a manifest of its own."""
ARCHIVE = "archive"
READ_BYTES = 2 * 1024 * 1024
BATCH = 2000
FETCH_WAIT_MS = 20
"""How long the broker may hold a fetch at the end of a partition: the next partition's waits behind it."""


class ReplayError(BraidError):
    """What was asked for cannot be replayed, archived or compared."""


Spans = dict[str, dict[int, Span]]
"""By topic (without prefix) and partition, which offsets."""

Losses = dict[str, dict[int, str]]
"""By topic and partition, what is gone."""


class FactLog(ABC):
    """A log that is read in blocks."""

    kind: str
    place: str
    """For people."""
    codec: Codec

    def __init__(self) -> None:
        self.damaged: Losses = {}
        """By topic and partition, why reading ended too early."""

    @abstractmethod
    async def spans(self, topics: Iterable[Topic] = FACTS) -> Spans:
        """What it holds now."""

    @abstractmethod
    def lost(self, spans: Spans) -> Losses:
        """By topic and partition, what is known to be gone of these."""

    @abstractmethod
    async def offsets_at(self, spans: Spans, at: int) -> dict[str, dict[int, int]]:
        """The first offset of each partition whose record is not older than a time; its end when there is none."""

    @abstractmethod
    def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncIterator[list[LogRecord]]:
        """The records of part of a partition, in order, some at a time."""

    async def learn(self, records: Iterable[LogRecord]) -> None:
        """Look up the schemas of records that were never seen, before they are decoded."""
        unknown = {found for record in records if (found := self.codec.unknown_id(record.value)) is not None}
        if unknown:
            await self.codec.learn(unknown)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return


class StoredSchemas(Registry):
    """The schemas that an archive brings along, by the ids in its records: a registry that is a file."""

    def __init__(self, schemas: Mapping[int, dict[str, Any]]) -> None:
        super().__init__("file:")
        self._schemas = schemas

    async def schema(self, schema_id: int) -> dict[str, Any] | None:
        """The schema with this id; None when the archive does not have it."""
        return self._schemas.get(schema_id)


class ArchiveLog(FactLog):
    """The files of `braid archive`, or the log that `braid run` left."""

    kind = "files"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.folder = log_folder(directory)
        self.place = str(directory)
        self._directory = directory
        self._manifest = read_manifest(directory)
        self._measured: dict[tuple[str, int], Span] = {}
        schemas = self._manifest.get("schemas", {})
        stored = {int(schema_id): schema for schema_id, schema in schemas.items()}
        self.codec = Codec(StoredSchemas(stored) if stored else None)

    async def spans(self, topics: Iterable[Topic] = FACTS) -> Spans:
        """As the manifest of the archive says; without one, from the first record of each partition to its last."""
        known = self._manifest.get("inputs", {}).get("topics", {}) if self._manifest.get("kind") == ARCHIVE else {}
        return {
            topic.name: {int(number): Span(*span) for number, span in known[topic.name].items()}
            if topic.name in known
            else {number: self._span(topic, number) for number in partitions_of(self.folder, topic.name)}
            for topic in topics
        }

    def lost(self, spans: Spans) -> Losses:
        """Files that the manifest names and that are not there."""
        losses: Losses = {}
        for name in self._manifest.get("files", {}):
            path = self._directory / name
            place = place_of(path)
            if not path.is_file() and place is not None and place[0] in spans:
                losses.setdefault(place[0], {})[place[1]] = f"{name} is missing"
        return losses

    def _span(self, topic: Topic, partition: int) -> Span:
        known = self._measured.get((topic.name, partition))
        if known is None:
            known = self._measured[topic.name, partition] = self._measure(topic, partition)
        return known

    def _measure(self, topic: Topic, partition: int) -> Span:
        first = last = None
        for block in self._whole(topic.name, partition):
            first = block[0].offset if first is None else first
            last = block[-1].offset
        return Span(0, 0) if first is None or last is None else Span(first, last + 1)

    async def offsets_at(self, spans: Spans, at: int) -> dict[str, dict[int, int]]:
        """Found by reading."""
        found: dict[str, dict[int, int]] = {}
        for name, parts in spans.items():
            for number, span in parts.items():
                later = (
                    record.offset
                    for block in self._whole(name, number) for record in block if record.at >= at
                )  # fmt: skip
                found.setdefault(name, {})[number] = next(later, span.end)
        return found

    async def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncIterator[list[LogRecord]]:
        """Block by block, as they were written."""
        for block in self._whole(topic.name, partition, span.start):
            if block[0].offset < span.start or block[-1].offset >= span.end:
                inside = [record for record in block if span.start <= record.offset < span.end]
                if inside:
                    yield inside
                if block[-1].offset >= span.end:
                    return
            else:
                yield block

    def _whole(self, topic: str, partition: int, start: int = 0) -> Iterator[list[LogRecord]]:
        """The blocks of a partition up to its end, or to where a file is damaged: what was before counts."""
        try:
            yield from (block for block in read_blocks(self.folder, topic, partition, start) if block)
        except EmbeddedLogError as error:
            self.damaged.setdefault(topic, {})[partition] = str(error)


class ClusterLog(FactLog):
    """The topics of one prefix, up to their ends when they are looked at."""

    kind = "kafka"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._log = KafkaLog(settings)
        self.settings = self._log.settings
        self.place = self._log.place
        self.codec = self._log.codec
        self._clients: dict[Topic, AIOKafkaConsumer] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._log)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            await client.stop()
        await self._stack.aclose()

    async def spans(self, topics: Iterable[Topic] = FACTS) -> Spans:
        """What the broker holds now."""
        found: Spans = {}
        for topic in topics:
            name = self._log.name(topic)
            places = [TopicPartition(name, number) for number in range(self._log.partitions(name))]
            found[topic.name] = {place.partition: span for place, span in (await self._log.spans(places)).items()}
        if not any(found.values()):
            raise ReplayError(f"{self.place} has no topics to read; is BRAID_PREFIX right?")
        return found

    def lost(self, spans: Spans) -> Losses:
        """Partitions that do not begin at 0: retention, or somebody, has removed their beginning."""
        return {
            name: {number: f"begins at offset {span.start}" for number, span in parts.items() if span.start}
            for name, parts in spans.items()
        }

    async def offsets_at(self, spans: Spans, at: int) -> dict[str, dict[int, int]]:
        """As the broker's index knows it."""
        found: dict[str, dict[int, int]] = {}
        for name, parts in spans.items():
            places = [TopicPartition(self.settings.prefix + name, number) for number in parts]
            later = await self._log.spans(places, since=at)
            found[name] = {place.partition: span.start for place, span in later.items()}
        return found

    async def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncIterator[list[LogRecord]]:
        """As the client fetches them. A client for each topic: one that holds records of several waits for all of them."""
        if topic not in self._clients:
            self._clients[topic] = await start_consumer(
                self.settings, max_partition_fetch_bytes=READ_BYTES, fetch_max_wait_ms=FETCH_WAIT_MS
            )
        client, place = self._clients[topic], TopicPartition(self._log.name(topic), partition)
        client.assign([place])
        client.seek(place, span.start)
        position, waited = span.start, 0.0
        while position < span.end:
            found = (await client.getmany(place, timeout_ms=POLL_MS, max_records=BATCH)).get(place, [])
            position = int(await client.position(place))
            waited = 0.0 if found else waited + POLL_MS / 1000
            if waited > STALL_S:
                raise ClusterError(
                    f"{self.place}: {topic.name}/{partition} has not answered for {STALL_S:.0f} s at offset {position}; is the "
                    "broker well? (`braid doctor`)"
                )
            block = [
                LogRecord(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
                for record in found if record.offset < span.end
            ]  # fmt: skip
            if block:
                yield block


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest in a directory; empty when there is none. Raises ReplayError for one that cannot be read."""
    path = directory / MANIFEST
    if not path.is_file():
        return {}
    try:
        plain = json.loads(path.read_bytes())
    except ValueError as error:
        raise ReplayError(f"{path}: not JSON: {error}") from None
    if not isinstance(plain, dict):
        raise ReplayError(f"{path}: not a manifest")
    return plain
