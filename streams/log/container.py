"""The embedded log: the same topics as files, for people without a broker. Avro containers, one or more per partition.

A record keeps its offset, time, key, value (in its wire form) and headers, so a file is read exactly as a partition is. A
partition may be cut into segments: each file after the first has the offset it begins with in its name. Files are written
under a temporary name and get their own when they are complete: no half file is ever visible. The same records give the
same bytes.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from schemas.codec.avro import reader_of
from schemas.errors import BraidError
from streams.log.file_writer import CODEC, MAGIC, MARKER_BYTES, META_SCHEMA, SCHEMA, SUFFIX
from streams.log.record import LogRecord

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_NAME = re.compile(rf"(?P<partition>\d{{5,}})(-(?P<first>\d{{20}}))?\{SUFFIX}")

_read = reader_of(SCHEMA, {"LogRecord": LogRecord, "LogHeader": tuple})
_read_meta = reader_of(META_SCHEMA)

HEAD_BYTES = 64 * 1024
"""More than any container of ours has before its first block."""


class EmbeddedLogError(BraidError):
    """The files are not an embedded log, or are damaged."""


def read_partition(folder: Path, topic: str, partition: int) -> Iterator[LogRecord]:
    """The records of a partition, in order; empty if it has no file. Raises EmbeddedLogError for a damaged file."""
    for path in segments_of(folder, topic, partition):
        for block in read_segment(path):
            yield from block


def read_segment(path: Path, start: int = 0, known: "BlockMap | None" = None) -> Iterator[list[LogRecord]]:
    """The records of one file, block by block; with `start`, from the block with this offset.

    `known` caches the blocks of the file for the next read. Raises EmbeddedLogError if the file is damaged.
    """
    with path.open("rb") as source:
        try:
            blocks = _blocks(source, path.stat().st_size)
            for block in (known or BlockMap()).from_offset(source, blocks, start) if start else blocks:
                yield _unpacked(source, block)
        except Exception as error:
            raise EmbeddedLogError(f"{path}: damaged after the records read so far: {error}") from error


def read_ends(path: Path) -> tuple[LogRecord, LogRecord] | None:
    """The first and the last record of a file, without unpacking those between; None if there are none.

    Raises EmbeddedLogError for damage that shows that way; inside of blocks that were passed over there may be more.
    """
    with path.open("rb") as source:
        try:
            blocks = [block for block in _blocks(source, path.stat().st_size) if block.records]
            if not blocks:
                return None
            first, last = (_unpacked(source, block) for block in (blocks[0], blocks[-1]))
        except Exception as error:
            raise EmbeddedLogError(f"{path}: damaged: {error}") from error
    return first[0], last[-1]


class _Block(NamedTuple):
    """A block of a container."""

    records: int
    """How many."""
    place: int
    """Where it begins."""
    length: int
    """Bytes, packed."""


class BlockMap:
    """The blocks of a file, and the first offsets of those that were read. Only for files that do not change."""

    def __init__(self) -> None:
        self._blocks: list[_Block] | None = None
        self._firsts: dict[int, int] = {}

    def from_offset(self, source: BinaryIO, blocks: Iterator[_Block], start: int) -> Iterator[_Block]:
        """Return the blocks from the one that contains offset `start`. A binary search finds it, so only a few blocks
        are decompressed."""
        damage: ValueError | None = None
        found = self._blocks or []
        if self._blocks is None:
            try:
                found += (block for block in blocks if block.records)
                self._blocks = found
            except ValueError as error:  # the blocks before the damage can be read
                damage = error
        behind = bisect_right(found, start, key=lambda block: self._first(source, block))
        yield from found[max(0, behind - 1) :]
        if damage is not None:
            raise damage

    def _first(self, source: BinaryIO, block: _Block) -> int:
        known = self._firsts.get(block.place)
        if known is None:
            known = self._firsts[block.place] = _unpacked(source, block)[0].offset
        return known


def _unpacked(source: BinaryIO, block: _Block) -> list[LogRecord]:
    source.seek(block.place)
    found: list[LogRecord] = _read.many(zstd.decompress(source.read(block.length)), block.records)
    return found


def _blocks(source: BinaryIO, size: int) -> Iterator[_Block]:
    """The blocks of a container, checked for completeness, without reading them."""
    marker = _begin(source)
    at = source.tell()
    while at < size:
        source.seek(at)
        count, length = _long(source), _long(source)
        place = source.tell()
        if not 0 <= length <= size - place:
            raise ValueError(f"a block of {length} bytes, and {size - place} are left")
        at = source.seek(place + length) + MARKER_BYTES
        if source.read(MARKER_BYTES) != marker:
            raise ValueError("a block does not end with the marker of the file")
        yield _Block(count, place, length)


def _begin(source: BinaryIO) -> bytes:
    """Read the header before the first block; return the marker that follows each block."""
    head = source.read(HEAD_BYTES)
    if not head.startswith(MAGIC):
        raise ValueError("it does not begin as an Avro container does")
    found, end = _read_meta(head, len(MAGIC))
    if found["meta"].get("avro.codec") != CODEC.encode():
        raise ValueError(f"its blocks are not compressed with {CODEC}")
    source.seek(end + MARKER_BYTES)
    return head[end : end + MARKER_BYTES]


def _long(source: BinaryIO) -> int:
    """The next integer of a container."""
    bits, shift = 0, 0
    while True:
        byte = source.read(1)
        if not byte or shift > 63:
            raise ValueError("it ends too early")
        bits |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (bits >> 1) ^ -(bits & 1)
        shift += 7


def segments_of(folder: Path, topic: str, partition: int) -> list[Path]:
    """The files of a partition, in order."""
    return sorted(
        (path for path, found in _files(folder, topic) if found == partition), key=lambda path: first_of(path) or 0
    )


def partitions_of(folder: Path, topic: str) -> list[int]:
    """The partitions that have a file."""
    return sorted({partition for _, partition in _files(folder, topic)})


def _files(folder: Path, topic: str) -> list[tuple[Path, int]]:
    found = ((path, _NAME.fullmatch(path.name)) for path in (folder / topic).glob(f"*{SUFFIX}"))
    return [(path, int(match["partition"])) for path, match in found if match is not None]


def place_of(path: Path) -> tuple[str, int] | None:
    """The topic and partition of a file, from its name; None for another file."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else (path.parent.name, int(match["partition"]))


def first_of(path: Path) -> int | None:
    """The offset that a segment begins with, by its name; None for the first file of a partition."""
    match = _NAME.fullmatch(path.name)
    return int(match["first"]) if match and match["first"] else None
