"""The log in files: `OUT/log` of `braid run`, and the files of `braid archive`; read like partitions."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streams.log.container import (
    BlockMap,
    EmbeddedLogError,
    first_of,
    partitions_of,
    place_of,
    read_ends,
    read_segment,
    segments_of,
)
from streams.log.durable_files import digest_of
from streams.log.file_writer import SUFFIX
from streams.log.files import LogFiles
from streams.log.losses import Losses, Offsets, add_loss, trimmed
from streams.log.manifest import ARCHIVE, LOG_MANIFEST
from streams.log.reader import LogReader
from streams.log.record import EVERYTHING, NOTHING, LogRecord, Span, Spans
from streams.log.topics import CLOSURES, FACTS, LIFECYCLE, Topic
from streams.log.wire import Codec

Place = tuple[str, int]
"""Topic and partition."""


class FileReader(LogReader):
    """Reads a directory of partitions. A new run replaces its files.

    Damage raises EmbeddedLogError. With `tolerant` it is noted in `damaged` and `lost`, and reading continues after it.
    See `LogFiles` for `unfinished`: a reader that is not tolerant then reads files without checking their digests.
    """

    kind = "directory"
    grows = False

    def __init__(self, directory: Path, *, unfinished: bool = False, tolerant: bool = False) -> None:
        self.files = LogFiles(directory, unfinished=unfinished)
        super().__init__(str(directory), f"directory {directory.resolve()}", Codec(stored=self.files.schemas))
        self.folder = self.files.folder
        self._tolerant = tolerant
        self._checks_digests = tolerant or not unfinished
        self._known = _archived(self.files.manifest)
        self._listed = _listed(self.files.home, self.files.manifest)
        self._measured: dict[Place, Span] = {}
        self._maps: dict[Path, BlockMap] = {}
        self._broken: dict[Place, dict[Span, str]] = {}
        """The offsets that damaged files may have had, and the damage."""

    def partitions(self, topic: Topic) -> list[int]:
        """The partitions that have a file."""
        return partitions_of(self.folder, topic.name)

    def prove(self) -> None:
        """Check all files against the manifest. Damage is raised only when it is read."""
        for path in sorted(self.folder.glob(f"*/*{SUFFIX}")) if self._checks_digests else ():
            with suppress(EmbeddedLogError, OSError):
                self.files.require_unchanged(path)

    # -- spans ---------------------------------------------------------------------------------------------------------

    async def spans(
        self, topics: Iterable[Topic] = FACTS, *, since: int | None = None, rollout_id: str | None = None
    ) -> Spans:
        """As the manifest of an archive states; without one, from the first record of each partition to its last."""
        home = None if rollout_id is None else self._home(rollout_id.encode())
        return {
            topic.name: {
                number: span if since is None else Span(self._first_at(topic.name, number, since, span.end), span.end)
                for number, span in self._spans_of(topic).items()
                if home in (None, number)
            }
            for topic in topics
        }

    def _spans_of(self, topic: Topic) -> dict[int, Span]:
        known = self._known.get(topic.name)
        if known is not None:
            return known
        return {number: self._span(topic.name, number) for number in self.partitions(topic)}

    def _first_at(self, topic: str, partition: int, since: int, end: int) -> int:
        """The first offset whose record is not older than a time; `end` if there is none. Found by reading."""
        blocks = self._segments(topic, partition)
        return next((record.offset for block in blocks for record in block if record.at >= since), end)

    def _home(self, key: bytes) -> int | None:
        """The partition of a rollout, by its decisions or its opening; None if it has neither.

        The number of partitions that a run had is not stored, so the small topics are searched.
        """
        for topic in (CLOSURES, LIFECYCLE):
            for partition in self.partitions(topic):
                if any(record.key == key for block in self._segments(topic.name, partition) for record in block):
                    return partition
        return None

    def _span(self, topic: str, partition: int) -> Span:
        known = self._measured.get((topic, partition))
        if known is None:
            known = self._measured[topic, partition] = self._measure(topic, partition)
        return known

    def _measure(self, topic: str, partition: int) -> Span:
        """From the first record to the last, read from the ends of files unless they are damaged."""
        try:
            ends = [found for path in segments_of(self.folder, topic, partition) if (found := read_ends(path))]
        except EmbeddedLogError:
            if not self._tolerant:
                return EVERYTHING  # reading it raises the error
            ends = [(block[0], block[-1]) for block in self._segments(topic, partition)]
        return Span(ends[0][0].offset, ends[-1][1].offset + 1) if ends else NOTHING

    # -- blocks --------------------------------------------------------------------------------------------------------

    async def blocks(self, topic: Topic, partition: int, span: Span) -> AsyncGenerator[list[LogRecord], None]:
        """Block by block, as they were written."""
        if span.start >= span.end:
            return
        reached = span.start
        for block in self._segments(topic.name, partition, span):
            reached = block[-1].offset + 1
            if block[0].offset < span.start or reached > span.end:
                inside = [record for record in block if span.start <= record.offset < span.end]
                if inside:
                    yield inside
            else:
                yield block
            if reached >= span.end:
                return
        # The last offsets of a topic may have no records: a file with the right digest is complete.
        listed = self._listed.get((topic.name, partition), [])
        proven = bool(listed) and self.files.is_unchanged(listed[-1][0])
        if reached < span.end and self._tolerant and topic.name in self._known and not proven:
            loss = f"ends at offset {reached}, {LOG_MANIFEST} says {span.end} (take a whole copy)"
            add_loss(self.damaged, topic.name, partition, loss)

    def _segments(self, topic: str, partition: int, span: Span = EVERYTHING) -> Iterator[list[LogRecord]]:
        """The blocks of a partition's files; of a damaged file those before the damage."""
        for path, may in _placed(segments_of(self.folder, topic, partition)):
            if not _overlap(may, span):
                continue
            try:
                if self._checks_digests:
                    self.files.require_unchanged(path)
                yield from (
                    block for block in read_segment(path, span.start, self._maps.setdefault(path, BlockMap())) if block
                )
            except EmbeddedLogError as error:
                if not self._tolerant:
                    raise
                self._broken.setdefault((topic, partition), {})[may] = str(error)
                add_loss(self.damaged, topic, partition, str(error))

    # -- losses --------------------------------------------------------------------------------------------------------

    def lost(self, spans: Spans, asked: Offsets | None = None, *, exact: bool = False) -> Losses:
        """Beginnings that were missing when it was made, and files that are in the manifest and missing now."""
        held = {
            name: {number: self._known.get(name, {}).get(number) or self._span(name, number) for number in parts}
            for name, parts in spans.items()
        }
        losses = {} if exact else trimmed(spans, held, asked or {})
        for name, parts in spans.items():
            for number, span in parts.items():
                # A caller that asks for the end asks for all of it, including parts that could not be measured.
                wanted = Span(span.start, EVERYTHING.end if span.end == held[name][number].end else span.end)
                for path, may in self._listed.get((name, number), ()):
                    if _overlap(may, wanted) and not path.is_file():
                        add_loss(losses, name, number, f"{path.relative_to(self.files.home)} is missing")
                for may, why in self._broken.get((name, number), {}).items():
                    if _overlap(may, wanted):
                        add_loss(losses, name, number, why)
        return losses

    def foreign(self, topic: Topic, partition: int) -> list[str]:
        """Files that the manifest of the archive does not name."""
        if not self._known:
            return []
        named = {path for path, _ in self._listed.get((topic.name, partition), ())}
        there = segments_of(self.folder, topic.name, partition)
        return [f"{path}: {LOG_MANIFEST} does not name it, and it was not read" for path in there if path not in named]

    def provenance(self, topics: Mapping[str, Any]) -> dict[str, Any]:
        """The directory, and the files of topics with their digests."""
        files = {
            str(path.relative_to(self.folder)): digest_of(path)
            for name in sorted(topics) for path in sorted((self.folder / name).glob(f"*{SUFFIX}"))
        }  # fmt: skip
        return {"kind": self.kind, "place": self.place, "topics": topics, "files": files}


def _archived(manifest: Mapping[str, Any]) -> Spans:
    """The spans that the manifest of an archive states."""
    known = manifest.get("inputs", {}).get("topics", {}) if manifest.get("kind") == ARCHIVE else {}
    return {name: {int(number): Span(*span) for number, span in parts.items()} for name, parts in known.items()}


def _listed(directory: Path, manifest: Mapping[str, Any]) -> dict[Place, list[tuple[Path, Span]]]:
    """The files of each partition that a manifest names, in order, with the offsets that they may have."""
    found: dict[Place, list[Path]] = {}
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
