"""Where rollouts are exported from: a cluster, or the directory of `braid run`. Both are pulled from, topic by topic.

Everything about a rollout stands in one partition number, so one partition is read at a time. Each topic is read only as
far as the rollout at hand needs: what is held in memory does not grow with the log.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, start_consumer
from streams.log.durable_files import digest_of
from streams.log.file_writer import SUFFIX
from streams.log.files import EmbeddedLog, LogFiles
from streams.log.kafka import POLL_MS, STALL_S, KafkaLog
from streams.log.reader import LookError, Stored
from streams.log.record import Span
from streams.log.topics import EVIDENCE, LIFECYCLE, Topic
from streams.log.wire import Codec

BATCH = 500
"""Records taken from the client at once."""


class Source(ABC):
    """One topic of one partition, from an offset to where it ended when the export began."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.position = start
        """The offset that comes next."""
        self.share = 0.0
        """How much of it was read, 0..1, where its end is known."""

    @abstractmethod
    async def next(self) -> Stored | None:
        """The next record; None at the end."""


class Input(ABC):
    """A log that can be pulled from."""

    kind: str
    place: str
    """For people."""
    identity: str
    """What a checkpoint belongs to."""
    codec: Codec

    @abstractmethod
    def partitions(self) -> list[int]:
        """The partitions that have evidence."""

    @abstractmethod
    async def open(self, partition: int, topics: Sequence[Topic], starts: Mapping[str, int]) -> dict[Topic, Source]:
        """The topics of a partition, from offsets on. The sources of the partition before are done with."""

    @abstractmethod
    def describe(self, read: Mapping[str, Mapping[int, tuple[int, int]]]) -> dict[str, Any]:
        """What was read, for the manifest: offsets from and to, by topic and partition."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return


class DirectoryInput(Input):
    """The embedded log that `braid run` left. It is read whole every time: a new run replaces its files."""

    kind = "directory"

    def __init__(self, directory: Path, *, unfinished: bool = False) -> None:
        self._log = EmbeddedLog(directory, unfinished=unfinished)
        self.place = str(directory)
        self.identity = f"directory {directory.resolve()}"
        self.codec = self._log.codec

    def partitions(self) -> list[int]:
        """The partitions that have a file of evidence."""
        return self._log.files.partitions(EVIDENCE.name)

    async def open(self, partition: int, topics: Sequence[Topic], starts: Mapping[str, int]) -> dict[Topic, Source]:
        """The files of a partition."""
        del starts
        return {topic: _FileSource(self._log.files, topic, partition) for topic in topics}

    def describe(self, read: Mapping[str, Mapping[int, tuple[int, int]]]) -> dict[str, Any]:
        """The files with their digests."""
        files = {
            str(path.relative_to(self._log.folder)): digest_of(path)
            for name in sorted(read) for path in sorted((self._log.folder / name).glob(f"*{SUFFIX}"))
        }  # fmt: skip
        return {"kind": self.kind, "place": self.place, "topics": _spans(read), "files": files}


class _FileSource(Source):
    def __init__(self, files: LogFiles, topic: Topic, partition: int) -> None:
        super().__init__(0)
        self._topic = topic
        self._partition = partition
        self._records = files.records(topic.name, partition)

    async def next(self) -> Stored | None:
        record = next(self._records, None)
        if record is None:
            return None
        self.position = record.offset + 1
        return Stored(self._topic, self._partition, record.offset, record.at, record.key, record.value, record.headers)


class KafkaInput(Input):
    """The topics of a cluster, up to their ends at the moment each partition is begun."""

    kind = "kafka"

    def __init__(self, settings: Settings) -> None:
        self._log = KafkaLog(settings)
        self.place = self._log.place
        self.identity = f"kafka {self._log.settings.prefix!r}"
        self.codec = self._log.codec
        self._clients: dict[Topic, AIOKafkaConsumer] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:  # closes the log again when there is nothing to read
            await stack.enter_async_context(self._log)
            self._log.require(EVIDENCE)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            await client.stop()
        await self._stack.aclose()

    def partitions(self) -> list[int]:
        """All partitions of the evidence."""
        return list(range(self._log.partitions(self._log.name(EVIDENCE))))

    async def open(self, partition: int, topics: Sequence[Topic], starts: Mapping[str, int]) -> dict[Topic, Source]:
        """The topics of a partition. Raises LookError when the log ends before the checkpoint: it is another log."""
        # Rows are written before the evidence that lists them: looking at the end of the evidence first, all that it lists
        # stands before the ends of the others.
        spans: dict[Topic, Span] = {}
        for some in ([EVIDENCE], [topic for topic in topics if topic is not EVIDENCE]):
            for topic in some:
                self._log.require(topic)
            places = {TopicPartition(self._log.name(topic), partition): topic for topic in some}
            spans |= {places[place]: span for place, span in (await self._log.spans(list(places))).items()}
        opened: dict[Topic, Source] = {}
        for topic, span in spans.items():
            start = 0 if topic is LIFECYCLE else starts.get(topic.name, 0)
            if start > span.end:
                raise LookError(
                    f"{self.place}: {topic.name}/{partition} ends at {span.end}, the checkpoint stands at {start}: this is "
                    "not the log that was exported from; export to another directory, or with --from-beginning"
                )
            place = TopicPartition(self._log.name(topic), partition)
            opened[topic] = _KafkaSource(topic, place, max(start, span.start), span.end, await self._client(topic))
        return opened

    async def _client(self, topic: Topic) -> AIOKafkaConsumer:
        """A client for each topic: one that holds records of several waits for all of them to be taken."""
        if topic not in self._clients:
            self._clients[topic] = await start_consumer(self._log.settings)
        return self._clients[topic]

    def describe(self, read: Mapping[str, Mapping[int, tuple[int, int]]]) -> dict[str, Any]:
        """Topics, partitions and offsets."""
        return {
            "kind": self.kind,
            "prefix": self._log.settings.prefix,
            "topics": _spans(read),
            "registry_ids": self.codec.registry_ids(),
        }


class _KafkaSource(Source):
    def __init__(self, topic: Topic, place: TopicPartition, start: int, end: int, client: AIOKafkaConsumer) -> None:
        super().__init__(start)
        self._topic = topic
        self._place = place
        self._end = end
        self._client = client
        self._waiting: deque[Any] = deque()
        self._assigned = False

    async def next(self) -> Stored | None:
        while not self._waiting:
            if self.position >= self._end:
                return None
            await self._fetch()
        record = self._waiting.popleft()
        self.position = record.offset + 1
        self.share = (self.position - self.start) / (self._end - self.start)
        return Stored(
            self._topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple(record.headers),
        )

    async def _fetch(self) -> None:
        if not self._assigned:
            self._client.assign([self._place])
            self._client.seek(self._place, self.position)
            self._assigned = True
        began = time.monotonic()
        while True:
            found = await self._client.getmany(self._place, timeout_ms=POLL_MS, max_records=BATCH)
            records = [record for record in found.get(self._place, ()) if record.offset < self._end]
            self._waiting.extend(records)
            if records:
                return
            reached = await self._client.position(self._place)
            if reached >= self._end:  # the last offsets of a topic may have no records
                self.position = self._end
                return
            if time.monotonic() - began > STALL_S:
                raise ClusterError(
                    f"{self._place.topic}/{self._place.partition}: nothing came for {STALL_S:.0f} s at offset {reached} "
                    f"of {self._end}; is the broker well? (`braid doctor`)"
                )


def _spans(read: Mapping[str, Mapping[int, tuple[int, int]]]) -> dict[str, Any]:
    return {
        topic: {str(partition): list(span) for partition, span in sorted(partitions.items())}
        for topic, partitions in sorted(read.items())
    }
