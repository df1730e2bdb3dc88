"""What is replayed: the topics of a cluster, or an archive of them on disk. Both give blocks of records, topic by topic."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiokafka import TopicPartition

from streams.cluster.config import Settings
from streams.log.container import (
    EmbeddedLogError,
    first_of,
    partitions_of,
    place_of,
    read_ends,
    read_segment,
    segments_of,
)
from streams.log.files import LogFiles
from streams.log.kafka import KafkaLog
from streams.log.kafka_fetch import Fetching
from streams.log.manifest import ARCHIVE, LOG_MANIFEST
from streams.log.record import EVERYTHING, NOTHING, LogRecord, Span, Spans
from streams.log.topics import CLOSURES, FACTS, Topic
from streams.log.wire import Codec

NAMED = 3
"""Losses of a partition that are named."""
SEPARATOR = "; "
MORE = "and more"
_VALUE = itemgetter(LogRecord._fields.index("value"))


Offsets = dict[str, dict[int, int]]
"""By topic and partition, one of them."""

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
    def lost(self, spans: Spans, asked: Offsets | None = None, *, exact: bool = False) -> Losses:
        """By topic and partition, what is known to be gone of these.

        `asked` says at which offsets somebody begins, and with `exact` they asked for these spans: what lies before is not gone.
        """

    @abstractmethod
    async def offsets_at(self, spans: Spans, at: int) -> Offsets:
        """The first offset of each partition whose record is not older than a time; its end when there is none."""

    @abstractmethod
    def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncIterator[list[LogRecord]]:
        """The records of part of a partition, in order, some at a time."""

    def foreign(self, topic: Topic, partition: int) -> list[str]:  # noqa: ARG002 - a cluster has nothing of the kind
        """What stands with a partition and is not read, because it is none of the log's."""
        return []

    async def learn(self, records: Iterable[LogRecord]) -> None:
        """Look up the schemas of records that were never seen, before they are decoded."""
        await self.codec.prepare(map(_VALUE, records))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return


class ArchiveLog(FactLog):
    """The files of `braid archive`, or the log that `braid run` left; see `LogFiles` for one that was not finished."""

    kind = "files"

    def __init__(self, directory: Path, *, unfinished: bool = False) -> None:
        super().__init__()
        self.files = LogFiles(directory, unfinished=unfinished)
        self.folder = self.files.folder
        self.place = str(directory)
        self._known = _archived(self.files.manifest)
        self._listed = _listed(self.files.home, self.files.manifest)
        self._measured: dict[tuple[str, int], Span] = {}
        self._broken: dict[tuple[str, int], dict[Span, str]] = {}
        """By topic and partition, the offsets that damaged files may have had, and the damage."""
        self.codec = Codec(stored=self.files.schemas)

    async def spans(self, topics: Iterable[Topic] = FACTS) -> Spans:
        """As the manifest of the archive says; without one, from the first record of each partition to its last."""
        return {
            topic.name: dict(self._known[topic.name])
            if topic.name in self._known
            else {number: self._span(topic.name, number) for number in partitions_of(self.folder, topic.name)}
            for topic in topics
        }

    def lost(self, spans: Spans, asked: Offsets | None = None, *, exact: bool = False) -> Losses:
        """Beginnings that were gone when it was made, and files that the manifest names and that are not there."""
        held = {
            name: {number: self._known.get(name, {}).get(number) or self._span(name, number) for number in parts}
            for name, parts in spans.items()
        }
        losses = {} if exact else _trimmed(spans, held, asked or {})
        for name, parts in spans.items():
            for number, span in parts.items():
                # Who asks for the end asks for all of it, also for what could not be measured.
                wanted = Span(span.start, EVERYTHING.end if span.end == held[name][number].end else span.end)
                for path, may in self._listed.get((name, number), ()):
                    if _overlap(may, wanted) and not path.is_file():
                        _add(losses, name, number, f"{path.relative_to(self.files.home)} is missing")
                for may, why in self._broken.get((name, number), {}).items():
                    if _overlap(may, wanted):
                        _add(losses, name, number, why)
        return losses

    def foreign(self, topic: Topic, partition: int) -> list[str]:
        """Files that the manifest of the archive does not name."""
        if not self._known:
            return []
        named = {path for path, _ in self._listed.get((topic.name, partition), ())}
        there = segments_of(self.folder, topic.name, partition)
        return [f"{path}: {LOG_MANIFEST} does not name it, and it was not read" for path in there if path not in named]

    def _span(self, topic: str, partition: int) -> Span:
        known = self._measured.get((topic, partition))
        if known is None:
            known = self._measured[topic, partition] = self._measure(topic, partition)
        return known

    def _measure(self, topic: str, partition: int) -> Span:
        """From the first record to the last: the ends of files say it, unless they are damaged."""
        try:
            ends = [found for path in segments_of(self.folder, topic, partition) if (found := read_ends(path))]
        except EmbeddedLogError:
            ends = [(block[0], block[-1]) for block in self._whole(topic, partition)]
        return Span(ends[0][0].offset, ends[-1][1].offset + 1) if ends else NOTHING

    async def offsets_at(self, spans: Spans, at: int) -> Offsets:
        """Found by reading."""
        found: Offsets = {}
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
        reached = span.start
        for block in self._whole(topic.name, partition, span):
            reached = block[-1].offset + 1
            if block[0].offset < span.start or reached > span.end:
                inside = [record for record in block if span.start <= record.offset < span.end]
                if inside:
                    yield inside
            else:
                yield block
            if reached >= span.end:
                return
        # The last offsets of a topic need not be records: a file with the right digest has all that there was.
        listed = self._listed.get((topic.name, partition), [])
        proven = bool(listed) and self.files.is_unchanged(listed[-1][0])
        if reached < span.end and topic.name in self._known and not proven:
            what = f"ends at offset {reached}, {LOG_MANIFEST} says {span.end} (take a whole copy)"
            _add(self.damaged, topic.name, partition, what)

    def _whole(self, topic: str, partition: int, span: Span = EVERYTHING) -> Iterator[list[LogRecord]]:
        """The blocks of a partition; of a file that turns out to be damaged those before the damage, and those of the next."""
        for path, may in _placed(segments_of(self.folder, topic, partition)):
            if not _overlap(may, span):
                continue
            try:
                self.files.require_unchanged(path)
                yield from (block for block in read_segment(path) if block)
            except EmbeddedLogError as error:
                self._broken.setdefault((topic, partition), {})[may] = str(error)
                _add(self.damaged, topic, partition, str(error))


class ClusterLog(FactLog):
    """The topics of one prefix, up to their ends when they are looked at."""

    kind = "kafka"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._log = KafkaLog(settings)
        self.settings = self._log.settings
        self.place = self._log.place
        self.codec = self._log.codec
        self._looked: asyncio.Future[KafkaLog] | None = None
        self._held: Spans = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self._log)
            self._fetching = Fetching(self.settings, self.place, self._beginning)
            await self._fetching.start()
            stack.push_async_callback(self._fetching.stop)
            self._stack = stack.pop_all()
        return self

    async def _looking(self) -> KafkaLog:
        """For who asks what there is. Who only reads does not, and need not wait until it is known."""
        if self._looked is None:
            self._looked = asyncio.ensure_future(self._log.__aenter__())
        return await self._looked

    async def _beginning(self, place: TopicPartition) -> int:
        """Where a partition begins by now, and that it has lost what was asked for."""
        first = await (await self._looking()).beginning(place)
        name = place.topic.removeprefix(self.settings.prefix)
        _add(self.damaged, name, place.partition, f"has come to begin at offset {first} while it was read")
        return first

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def spans(self, topics: Iterable[Topic] = FACTS) -> Spans:
        """What the broker holds now. Decisions are asked for first: what they pin stood in the log before them."""
        wanted, log = list(topics), await self._looking()
        found: Spans = {topic.name: {} for topic in wanted}
        for topic in sorted(wanted, key=lambda topic: topic is not CLOSURES):
            name = log.name(topic)
            places = [TopicPartition(name, number) for number in range(log.partitions(name))]
            found[topic.name] = {place.partition: span for place, span in (await log.spans(places)).items()}
        self._held |= found
        return found

    def lost(self, spans: Spans, asked: Offsets | None = None, *, exact: bool = False) -> Losses:
        """Partitions that do not begin at 0: retention, or somebody, has removed their beginning."""
        return {} if exact else _trimmed(spans, self._held, asked or {})

    async def offsets_at(self, spans: Spans, at: int) -> Offsets:
        """As the broker's index knows it."""
        found: Offsets = {}
        for name, parts in spans.items():
            places = [TopicPartition(self.settings.prefix + name, number) for number in parts]
            later = await (await self._looking()).spans(places, since=at)
            found[name] = {place.partition: span.start for place, span in later.items()}
        return found

    def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncIterator[list[LogRecord]]:
        """As the brokers hold them."""
        return self._fetching.blocks(self._log.name(topic), partition, span)


def _trimmed(spans: Spans, held: Spans, asked: Offsets) -> Losses:
    """Partitions whose beginning is gone although it was asked for: by an offset before it, or by a time that it does not prove."""
    losses: Losses = {}
    for name, parts in spans.items():
        for number, span in parts.items():
            there = held.get(name, {}).get(number, span)
            wanted = span.start < span.end or there.start == there.end
            if wanted and span.start == there.start > asked.get(name, {}).get(number, 0):
                _add(losses, name, number, f"begins at offset {there.start}")
    return losses


def _archived(manifest: Mapping[str, Any]) -> Spans:
    """What the manifest of an archive says it holds."""
    known = manifest.get("inputs", {}).get("topics", {}) if manifest.get("kind") == ARCHIVE else {}
    return {name: {int(number): Span(*span) for number, span in parts.items()} for name, parts in known.items()}


def _listed(directory: Path, manifest: Mapping[str, Any]) -> dict[tuple[str, int], list[tuple[Path, Span]]]:
    """The files of each partition that a manifest names, in order, with the offsets that they may have."""
    found: dict[tuple[str, int], list[Path]] = {}
    for path in (directory / name for name in manifest.get("files", {})):
        place = place_of(path)
        if place is not None:
            found.setdefault(place, []).append(path)
    return {place: _placed(sorted(paths, key=lambda path: first_of(path) or 0)) for place, paths in found.items()}


def _placed(segments: list[Path]) -> list[tuple[Path, Span]]:
    """The files of a partition, in order, with the offsets that they may have by their names."""
    firsts = [first_of(path) or 0 for path in segments]
    ends = [*firsts[1:], EVERYTHING.end][: len(firsts)]
    return [(path, Span(first, end)) for path, first, end in zip(segments, firsts, ends, strict=True)]


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _add(losses: Losses, name: str, number: int, what: str) -> None:
    """Note something that is gone; what is noted already is not said again."""
    known = losses.setdefault(name, {}).get(number)
    losses[name][number] = what if known is None else both(known, what)


def both(known: str, more: str) -> str:
    """Two reasons as one; only so many are named."""
    said = known.split(SEPARATOR)
    if more in said or said[-1] == MORE:
        return known
    return SEPARATOR.join([*said, more if len(said) < NAMED else MORE])
