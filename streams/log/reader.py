"""The reader of the log: one port, over Kafka (`kafka_reader.py`) and over files (`file_reader.py`).

A reader returns the spans of offsets that its partitions have, and reads a span in blocks of records. Everything else
is built on these two. Damage is raised, or noted as a loss, as the reader was asked to.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from operator import itemgetter
from types import TracebackType
from typing import Any, ClassVar, Self

from schemas.base import Record
from schemas.errors import BraidError
from streams.log.facts import read_record
from streams.log.losses import Losses, Offsets
from streams.log.progress import Say, quiet
from streams.log.record import LogRecord, Placed, Span, Spans
from streams.log.terminal_text import line
from streams.log.topics import BY_NAME, CLOSURES, FACTS, LIFECYCLE, Topic
from streams.log.view_rows import ViewRow
from streams.log.wire import Codec

_VALUE = itemgetter(LogRecord._fields.index("value"))


NEAR = 64
"""Records of others that are read and skipped, because a separate request would cost more."""


class LookError(BraidError):
    """The requested records are not in the log, or it cannot be read."""


class LogReader(ABC):
    """Reads a log; an async context manager."""

    kind: ClassVar[str]
    grows: ClassVar[bool]
    """Whether the log only grows, so that an offset means the same record at the next read."""

    def __init__(self, place: str, identity: str, codec: Codec, say: Say = quiet) -> None:
        self.place = place
        """The place of the log, for people."""
        self.identity = identity
        """Names the log in a checkpoint."""
        self.codec = codec
        self.damaged: Losses = {}
        """By topic and partition, why reading ended too early."""
        self._say = say

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return

    # -- spans and blocks ----------------------------------------------------------------------------------------------

    @abstractmethod
    def partitions(self, topic: Topic) -> list[int]:
        """The partitions that a topic has."""

    @abstractmethod
    async def spans(
        self, topics: Iterable[Topic] = FACTS, *, since: int | None = None, rollout_id: str | None = None
    ) -> Spans:
        """The offsets that topics have now: all, those from a time on, those of the partition of one rollout."""

    @abstractmethod
    def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncGenerator[list[LogRecord], None]:
        """The records of a span, in order, block by block."""

    @abstractmethod
    def lost(self, spans: Spans, asked: Offsets | None = None, *, exact: bool = False) -> Losses:
        """By topic and partition, the known losses of spans.

        `asked` has the offsets at which the caller begins. With `exact` the caller asked for exactly these spans. In
        both cases records before them are not lost.
        """

    def foreign(self, topic: Topic, partition: int) -> list[str]:  # noqa: ARG002 - a cluster has none
        """Files of a partition that are not read, because the manifest does not name them."""
        return []

    def prove(self) -> None:  # noqa: B027 - a cluster proves each batch when it is read
        """Check files against their manifest ahead of time, so that the first read of each does not wait for it."""

    def require(self, topic: Topic) -> None:  # noqa: B027 - files hold the topics that were written
        """Raise LookError if a cluster has no such topic yet."""

    @abstractmethod
    def provenance(self, topics: Mapping[str, Any]) -> dict[str, Any]:
        """The entry in a dataset's manifest for the log that it was made from; `topics` has the offsets that were read."""

    # -- records -------------------------------------------------------------------------------------------------------

    async def read(self, spans: Spans) -> AsyncGenerator[Placed, None]:
        """The records of spans, topic by topic, each partition in its order."""
        total, done = sum(span.end - span.start for parts in spans.values() for span in parts.values()), 0
        for name, parts in spans.items():
            topic = BY_NAME[name]
            for partition, span in parts.items():
                async with aclosing(self.blocks(topic, partition, span)) as blocks:
                    async for block in blocks:
                        for record in block:
                            yield Placed(topic, partition, record)
                        done += len(block)
                        self._say("reading", min(1.0, done / total))

    async def records(
        self, topics: Iterable[Topic], *, rollout_id: str | None = None, since: int | None = None
    ) -> AsyncGenerator[Placed, None]:
        """The records that topics have now; optionally of one rollout, or from a time on.

        Records of other rollouts are skipped by their key, without being decoded.
        """
        key = None if rollout_id is None else rollout_id.encode()
        async with aclosing(self.read(await self.spans(topics, since=since, rollout_id=rollout_id))) as found:
            async for placed in found:
                if key is None or placed.record.key == key:
                    yield placed

    async def each_at(self, topic: Topic, partition: int, offsets: Sequence[int]) -> AsyncGenerator[LogRecord, None]:
        """The records at offsets, which ascend. Neighbouring offsets are read together; deleted ones are left out."""
        wanted = set(offsets)
        for span in _near(offsets):
            async with aclosing(self.blocks(topic, partition, span)) as blocks:
                async for block in blocks:
                    for record in block:
                        if record.offset in wanted:
                            yield record

    async def at(self, topic: Topic, partition: int, offsets: Sequence[int]) -> list[LogRecord]:
        """The same as a list, for a few records."""
        return [record async for record in self.each_at(topic, partition, offsets)]

    async def view_changes(self, read_to: dict[int, int]) -> AsyncGenerator[LogRecord, None]:
        """The changes of the worker's view behind offsets, by partition, which are moved to its end. Files have no worker."""
        del read_to
        none: tuple[LogRecord, ...] = ()
        for record in none:
            yield record

    def follow(
        self, topic: Topic, *, rollout_id: str | None = None, from_beginning: bool = False
    ) -> AsyncGenerator[Placed, None]:
        """The records of a topic as they come, without an end. Raises LookError for files."""
        del rollout_id, from_beginning
        raise LookError(f"{self.place} is files: nothing comes to {topic.name} any more; read it without following")

    async def count(self, topics: Iterable[Topic]) -> int:
        """The number of records in topics, without reading them."""
        spans = await self.spans(topics)
        return sum(span.end - span.start for parts in spans.values() for span in parts.values())

    async def view_row(self, rollout_id: str) -> ViewRow | None:
        """The worker's row of a rollout, if there is a worker."""
        del rollout_id
        return None

    async def rollouts(self) -> list[str]:
        """The ids of the rollouts that were decided or opened."""
        keys = {record.key async for _, _, record in self.records([CLOSURES, LIFECYCLE]) if record.key}
        return sorted(key.decode(errors="replace") for key in keys)

    # -- decoding ------------------------------------------------------------------------------------------------------

    async def learn(self, records: Iterable[LogRecord]) -> None:
        """Fetch the unknown schemas that records name, before the records are decoded."""
        await self.codec.prepare(map(_VALUE, records))

    async def decode(self, placed: Placed) -> Record:
        """Decode a record.

        Raises DecodeError if its value is not valid for its topic, or belongs to another rollout than its key;
        RegistryUnreachableError if the registry does not answer.
        """
        topic, _, record = placed
        await self.learn([record])
        return read_record(self.codec, topic, record.key, record.value)


def _near(offsets: Sequence[int]) -> list[Span]:
    """Spans that cover ascending offsets, none with a long stretch of others."""
    spans: list[Span] = []
    for offset in offsets:
        if spans and offset < spans[-1].end + NEAR:
            spans[-1] = Span(spans[-1].start, offset + 1)
        else:
            spans.append(Span(offset, offset + 1))
    return spans


def unknown_rollout(rollout_id: str, place: str, known: Iterable[str]) -> str:
    """The error text for a rollout that the log does not have."""
    close = get_close_matches(rollout_id, list(known), n=3)
    meant = f"; did you mean {' or '.join(line(each) for each in close)}?" if close else ""
    return f"{place}: there is no rollout {line(rollout_id)!r}{meant or '; `braid rollouts` lists those there are'}"
