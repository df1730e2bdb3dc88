"""The embedded log: the same topics as files, for people without a broker. One Avro container per topic and partition.

A record keeps its offset, time, key, value (in its wire form) and headers, so a file is read exactly as a partition is.
Files are written under a temporary name and get their own when they are complete: no half file is ever visible.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import fastavro
from fastavro.write import Writer

from schemas.errors import BraidError

SCHEMA: Any = fastavro.parse_schema(
    {
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
)

BLOCK_BYTES = 256 * 1024
SUFFIX = ".avro"
PARTIAL = ".part"

CODEC = "zstandard"


class LogRecord(NamedTuple):
    """One record of the log."""

    offset: int
    at: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class EmbeddedLogError(BraidError):
    """The files are not an embedded log, or are damaged."""


def file_of(folder: Path, topic: str, partition: int) -> Path:
    """The file of a partition."""
    return folder / topic / f"{partition:05d}{SUFFIX}"


class LogWriter:
    """Appends to the files of an embedded log; they become visible when it is closed without an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[tuple[str, int], tuple[Writer, Path, Any]] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._open = ExitStack()

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        at: int,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> LogRecord:
        """Write a record; returns it with its offset."""
        place = (topic, partition)
        writer = (self._files.get(place) or self._create(place))[0]
        record = LogRecord(self._offsets[place], at, key, value, headers)
        self._offsets[place] += 1
        writer.write(
            {
                "offset": record.offset,
                "timestamp_ms": at,
                "key": key,
                "value": value,
                "headers": [{"name": name, "value": content} for name, content in headers],
            }
        )
        return record

    def _create(self, place: tuple[str, int]) -> tuple[Writer, Path, Any]:
        path = file_of(self.folder, *place)
        path.parent.mkdir(parents=True, exist_ok=True)
        out = self._open.enter_context(path.with_suffix(PARTIAL).open("wb"))
        # The marker between blocks is a function of the place: the same records give the same file.
        marker = sha256(f"{place[0]}/{place[1]}".encode()).digest()[:16]
        writer = Writer(out, SCHEMA, codec=CODEC, sync_interval=BLOCK_BYTES, sync_marker=marker)
        self._files[place] = (writer, path, out)
        self._offsets[place] = 0
        return self._files[place]

    def publish(self, topic: str | None = None, partition: int | None = None) -> None:
        """Complete files (all, or those of one topic or partition) and give them their names."""
        chosen = [place for place in self._files if topic in (None, place[0]) and partition in (None, place[1])]
        for place in chosen:
            writer, path, out = self._files.pop(place)
            writer.flush()
            out.flush()
            os.fsync(out.fileno())
            out.close()
            path.with_suffix(PARTIAL).replace(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.publish()
        self._open.close()


def read_partition(folder: Path, topic: str, partition: int) -> Iterator[LogRecord]:
    """The records of a partition, in order; none when it has no file. Raises EmbeddedLogError for a damaged file."""
    path = file_of(folder, topic, partition)
    if not path.exists():
        return
    with path.open("rb") as source:
        try:
            for plain in fastavro.reader(source):
                row: Any = plain
                yield LogRecord(
                    row["offset"], row["timestamp_ms"], row["key"], row["value"],
                    tuple((header["name"], header["value"]) for header in row["headers"]),
                )  # fmt: skip
        except Exception as error:
            raise EmbeddedLogError(f"{path}: damaged after the records read so far: {error}") from error


def partitions_of(folder: Path, topic: str) -> list[int]:
    """The partitions that have a file."""
    return sorted(int(path.stem) for path in (folder / topic).glob(f"*{SUFFIX}"))
