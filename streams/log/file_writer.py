"""Writing the files of an embedded log: Avro containers that become visible when they are complete."""

import json
import os
import sys
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from schemas.codec.avro import writer_of
from streams.log.durable_files import PARTIAL, naming, open_output
from streams.log.outgoing_record import Outgoing
from streams.log.record import LogRecord

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
RECORD_BYTES: Final = 16
"""The least counted size of a record, so that a block of records without values ends, too."""
SUFFIX = ".avro"

CODEC = "zstandard"
LEVEL = 3

_PACKER: Final = zstd.ZstdCompressor(LEVEL)
"""One for all files, so that its tables are not made for every block. A frame does not depend on those before it."""


META_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "braidstream.LogMeta",
    "fields": [{"name": "meta", "type": {"type": "map", "values": "bytes"}}],
}
"""The header of a container, before its marker."""

SIZES_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "braidstream.BlockSizes",
    "fields": [{"name": "records", "type": "long"}, {"name": "bytes", "type": "long"}],
}
"""The first two numbers of every block."""

_record: Final = partial(tuple.__new__, LogRecord)
"""Makes a LogRecord of a tuple, without the Python call that the class makes of it."""

_write: Final = writer_of(SCHEMA)
_write_meta: Final = writer_of(META_SCHEMA)
_write_sizes: Final = writer_of(SIZES_SCHEMA)

MAGIC = b"Obj\x01"
MARKER_BYTES = 16


def file_of(folder: Path, topic: str, partition: int, first: int | None = None) -> Path:
    """The file of a partition; a later segment has its first offset in its name."""
    segment = "" if first is None else f"-{first:020d}"
    return folder / topic / f"{partition:05d}{segment}{SUFFIX}"


class _File:
    """A container that is being written."""

    def __init__(self, path: Path, marker: bytes) -> None:
        self.path = path
        self.records = 0
        self.written = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._out: BinaryIO = open_output(path.with_suffix(PARTIAL))
        self._marker = marker
        self._block: list[LogRecord] = []
        self._size = 0
        meta = {"avro.codec": CODEC.encode(), "avro.schema": json.dumps(SCHEMA, separators=(",", ":")).encode()}
        self._put(MAGIC + _write_meta((meta,)) + marker)

    def append(self, record: LogRecord) -> None:
        self._block.append(record)
        _, _, key, value, headers = record
        size = RECORD_BYTES + len(key or b"") + len(value or b"")
        for _, content in headers:
            size += len(content)
        self._size += size
        self.records += 1
        if self._size >= BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._block:
            packed = _PACKER.compress(_write.many(self._block), zstd.ZstdCompressor.FLUSH_FRAME)
            self._put(_write_sizes((len(self._block), len(packed))) + packed + self._marker)
            self._block, self._size = [], 0

    def _put(self, data: bytes) -> None:
        self._out.write(data)
        self.written += len(data)

    def publish(self) -> None:
        """Complete the file and rename it to its final name."""
        self._flush()
        with naming(self.path):
            self._out.flush()
            os.fsync(self._out.fileno())
            self._out.close()
        self.path.with_suffix(PARTIAL).replace(self.path)

    def discard(self) -> None:
        with suppress(OSError):  # on a full disk the last flush fails, too
            self._out.close()
        self.path.with_suffix(PARTIAL).unlink(missing_ok=True)


class LogWriter:
    """Appends to the files of an embedded log; they become visible when it is closed without an error."""

    def __init__(self, folder: Path, segment_bytes: int | None = None) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._files: dict[tuple[str, int], _File] = {}
        self._offsets: dict[tuple[str, int], int] = {}

    def write(self, record: Outgoing, at: int) -> LogRecord:
        """Write a record with a time; returns it with its offset."""
        return self.append(record.topic, record.partition, record.key, record.value, at, tuple(record.headers))

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
        """Write a record and return it. Without `offset` it gets the next offset of its partition."""
        place = (topic, partition)
        at_offset = self._offsets.get(place, 0) if offset is None else offset
        record = _record((at_offset, at, key, value, headers))
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
        # The marker between blocks is a function of topic and partition: the same records give the same file.
        marker = sha256(f"{place[0]}/{place[1]}".encode()).digest()[:16]
        return _File(file_of(self.folder, *place, first), marker)

    def publish(self, topic: str | None = None, partition: int | None = None) -> None:
        """Complete files (all, or those of one topic or partition) and rename them to their final names."""
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
