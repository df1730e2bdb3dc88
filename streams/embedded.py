"""The embedded log: the same topics as files, for people without a broker. Avro containers, one or more per partition.

A record keeps its offset, time, key, value (in its wire form) and headers, so a file is read exactly as a partition is. A
partition may be cut into segments: each file after the first has the offset it begins with in its name. Files are written
under a temporary name and get their own when they are complete: no half file is ever visible. The same records give the same
bytes.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

from schemas.avro_code import reader_of, writer_of
from schemas.avro_python import long_bytes
from schemas.checked import quick
from schemas.errors import BraidError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "braidstream.LogRecord",
    "fields": [
        {"name": "offset", "type": "long"},
        {"name": "timestamp_ms", "type": "long"},
        {"name": "key", "type": ["null", "bytes"]},
        {"name": "value", "type": ["null", "bytes"]},
        {
            "name": "headers",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "braidstream.LogHeader",
                    "fields": [{"name": "name", "type": "string"}, {"name": "value", "type": "bytes"}],
                },
            },
        },
    ],
}

BLOCK_BYTES = 256 * 1024
SUFFIX = ".avro"
PARTIAL = ".part"

CODEC = "zstandard"
LEVEL = 3

_NAME = re.compile(rf"(?P<partition>\d{{5,}})(-(?P<first>\d{{20}}))?\{SUFFIX}")


@quick
class LogRecord(NamedTuple):
    """One record of the log."""

    offset: int
    at: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @property
    def timestamp_ms(self) -> int:
        """When the log took it in: the name in the file."""
        return self.at


class _Header(NamedTuple):
    name: str
    value: bytes


_write = writer_of(SCHEMA)
_read = reader_of(SCHEMA, {"LogRecord": LogRecord, "LogHeader": tuple})
_read_meta = reader_of(
    {
        "type": "record",
        "name": "braidstream.LogMeta",
        "fields": [{"name": "meta", "type": {"type": "map", "values": "bytes"}}],
    }
)

MAGIC = b"Obj\x01"
MARKER_BYTES = 16
HEAD_BYTES = 64 * 1024
"""More than any container of ours has before its first block."""


class EmbeddedLogError(BraidError):
    """The files are not an embedded log, or are damaged."""


def file_of(folder: Path, topic: str, partition: int, first: int | None = None) -> Path:
    """The file of a partition; of a later segment, when it says with which offset it begins."""
    segment = "" if first is None else f"-{first:020d}"
    return folder / topic / f"{partition:05d}{segment}{SUFFIX}"


class _File:
    """A container that is being written."""

    def __init__(self, path: Path, marker: bytes) -> None:
        self.path = path
        self.records = 0
        self.written = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._out: BinaryIO = path.with_suffix(PARTIAL).open("wb")
        self._marker = marker
        self._block: list[bytes] = []
        self._size = 0
        meta = {b"avro.codec": CODEC.encode(), b"avro.schema": json.dumps(SCHEMA, separators=(",", ":")).encode()}
        pairs = b"".join(long_bytes(len(part)) + part for pair in meta.items() for part in pair)
        self._put(MAGIC + long_bytes(len(meta)) + pairs + b"\0" + marker)

    def append(self, record: LogRecord) -> None:
        body = _write(record)
        self._block.append(body)
        self._size += len(body)
        self.records += 1
        if self._size >= BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._block:
            packed = zstd.compress(b"".join(self._block), level=LEVEL)
            self._put(long_bytes(len(self._block)) + long_bytes(len(packed)) + packed + self._marker)
            self._block, self._size = [], 0

    def _put(self, data: bytes) -> None:
        self._out.write(data)
        self.written += len(data)

    def publish(self) -> None:
        """Complete the file and give it its name."""
        self._flush()
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()
        self.path.with_suffix(PARTIAL).replace(self.path)

    def discard(self) -> None:
        self._out.close()
        self.path.with_suffix(PARTIAL).unlink(missing_ok=True)


class LogWriter:
    """Appends to the files of an embedded log; they become visible when it is closed without an error."""

    def __init__(self, folder: Path, segment_bytes: int | None = None) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._files: dict[tuple[str, int], _File] = {}
        self._offsets: dict[tuple[str, int], int] = {}

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        at: int,
        headers: tuple[tuple[str, bytes], ...] = (),
        offset: int | None = None,
    ) -> LogRecord:
        """Write a record; returns it with its offset, the next one unless it is given."""
        place = (topic, partition)
        at_offset = self._offsets.get(place, 0) if offset is None else offset
        record = LogRecord(at_offset, at, key, value, _named(headers) if headers else ())
        file = self._files.get(place)
        if file is None:
            file = self._files[place] = self._create(place, None)
        elif self._segment_bytes is not None and file.written >= self._segment_bytes:
            file.publish()
            file = self._files[place] = self._create(place, at_offset)
        file.append(record)
        self._offsets[place] = at_offset + 1
        return record

    def _create(self, place: tuple[str, int], first: int | None) -> _File:
        # The marker between blocks is a function of the place: the same records give the same file.
        marker = sha256(f"{place[0]}/{place[1]}".encode()).digest()[:16]
        return _File(file_of(self.folder, *place, first), marker)

    def publish(self, topic: str | None = None, partition: int | None = None) -> None:
        """Complete files (all, or those of one topic or partition) and give them their names."""
        for place in [each for each in self._files if topic in (None, each[0]) and partition in (None, each[1])]:
            self._files.pop(place).publish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.publish()
        for file in self._files.values():
            file.discard()


def read_partition(folder: Path, topic: str, partition: int) -> Iterator[LogRecord]:
    """The records of a partition, in order; none when it has no file. Raises EmbeddedLogError for a damaged file."""
    for block in read_blocks(folder, topic, partition):
        yield from block


def read_blocks(folder: Path, topic: str, partition: int, start: int = 0) -> Iterator[list[LogRecord]]:
    """The same, block by block; segments that end before `start` are passed over."""
    segments = segments_of(folder, topic, partition)
    for number, path in enumerate(segments):
        if number + 1 == len(segments) or (first_of(segments[number + 1]) or 0) > start:
            yield from read_segment(path)


def read_segment(path: Path) -> Iterator[list[LogRecord]]:
    """The records of one file, block by block. Raises EmbeddedLogError where it is damaged."""
    with path.open("rb") as source:
        try:
            for count, packed in _packed(source, path.stat().st_size):
                yield _read.many(zstd.decompress(packed), count)
        except Exception as error:
            raise EmbeddedLogError(f"{path}: damaged after the records read so far: {error}") from error


def _packed(source: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a container as they stand in it: how many records, and their bytes."""
    marker = _begin(source)
    while (left := size - source.tell()) > 0:
        count, length = _long(source), _long(source)
        if not 0 <= length <= left:
            raise ValueError(f"a block of {length} bytes, and {left} are left")
        packed = source.read(length)
        if source.read(MARKER_BYTES) != marker:
            raise ValueError("a block does not end with the marker of the file")
        yield count, packed


def _begin(source: BinaryIO) -> bytes:
    """Read what stands before the first block; returns the marker that follows each of them."""
    head = source.read(HEAD_BYTES)
    if not head.startswith(MAGIC):
        raise ValueError("it does not begin as an Avro container does")
    found, end = _read_meta(head, len(MAGIC))
    if found["meta"].get("avro.codec") != CODEC.encode():
        raise ValueError(f"its blocks are not compressed with {CODEC}")
    source.seek(end + MARKER_BYTES)
    return head[end : end + MARKER_BYTES]


def _long(source: BinaryIO) -> int:
    """The next whole number of a container."""
    bits, shift = 0, 0
    while True:
        byte = source.read(1)
        if not byte or shift > 63:
            raise ValueError("it ends too early")
        bits |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (bits >> 1) ^ -(bits & 1)
        shift += 7


@lru_cache(maxsize=256)  # those of a log are the same again and again
def _named(headers: tuple[tuple[str, bytes], ...]) -> tuple[_Header, ...]:
    """Headers as they are written."""
    return tuple([_Header(name, value) for name, value in headers])


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
    """The topic and partition that a file belongs to, by its name; None for another file."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else (path.parent.name, int(match["partition"]))


def first_of(path: Path) -> int | None:
    """The offset that a segment begins with, by its name; None for the first file of a partition."""
    match = _NAME.fullmatch(path.name)
    return int(match["first"]) if match and match["first"] else None
