"""Files of rows, JSON lines or Parquet, that become visible together, when all of them are complete.

A rollout's rows are never spread over two files. Until `reveal` every file has a temporary name; whatever goes wrong
before, nothing half is ever to be seen.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from agents.evidence.canonical import canonical_bytes
from agents.formats.shape import Column, FileKind, Format, Layout, ListOf, Row, Struct
from schemas.jsontext import compact
from streams.log.durable_files import PARTIAL, open_output, sync_folder

ROWS_AT_ONCE = 1000
BYTES_AT_ONCE = 8 * 1024 * 1024
"""Parquet is written in groups of rows: so many rows, or what came of so many bytes of the log."""

ALONE = "trajectory.json"
"""The file of a row that has a directory of its own."""


class Shard(NamedTuple):
    """A complete file."""

    name: str
    part: str
    split: str
    rows: int
    bytes: int
    sha256: str


class Place(NamedTuple):
    """Where a row went, and its digest: of its line, or of its values in a Parquet file."""

    file: str
    row: int
    sha256: str


class Writer(ABC):
    """One file while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0

    @abstractmethod
    def write(self, rows: Sequence[dict[str, Any]], weight: int) -> list[str]:
        """Add rows; returns the digest of each."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""

    def discard(self) -> None:
        """Remove the file."""
        with suppress(OSError, pa.ArrowException):  # a full disk takes no last flush either
            self.close()
        self.path.unlink(missing_ok=True)


class Lines(Writer):
    """JSON lines."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._out = open_output(path)

    def write(self, rows: Sequence[dict[str, Any]], weight: int) -> list[str]:
        """Add rows, one a line."""
        del weight
        lines = [compact(row).encode() for row in rows]
        self._out.writelines(line + b"\n" for line in lines)
        self.rows += len(rows)
        return [sha256(line).hexdigest() for line in lines]

    def close(self) -> None:
        """Write what is left."""
        self._out.close()


class _Parquet(Writer):
    def __init__(self, path: Path, columns: Mapping[str, Column]) -> None:
        super().__init__(path)
        self._columns = columns
        self._schema = pa.schema([(name, arrow_type(column)) for name, column in columns.items()])
        self._file = open_output(path)
        self._out = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._waiting: list[dict[str, Any]] = []
        self._weight = 0

    def write(self, rows: Sequence[dict[str, Any]], weight: int) -> list[str]:
        columns = [as_columns(row, self._columns) for row in rows]
        self._waiting += columns
        self.rows += len(rows)
        self._weight += weight
        if len(self._waiting) >= ROWS_AT_ONCE or self._weight >= BYTES_AT_ONCE:
            self._flush()
        return [values_digest(row) for row in columns]

    def close(self) -> None:
        if self._waiting:
            self._flush()
        try:
            self._out.close()
        finally:
            self._file.close()

    def discard(self) -> None:
        self._waiting = []
        super().discard()

    def _flush(self) -> None:
        self._out.write_table(pa.Table.from_pylist(self._waiting, schema=self._schema))
        self._waiting, self._weight = [], 0


class Shards:
    """The files of one export."""

    def __init__(
        self, folder: Path, form: Format, kind: FileKind, shard_rows: int, numbers: Mapping[str, int],
        layout: Layout = "files",
    ) -> None:  # fmt: skip
        self._layout = layout
        self._folder = folder
        self._form = form
        self._kind = kind
        self._shard_rows = shard_rows
        self.numbers = dict(numbers)
        """By the beginning of its name, the number of the next file."""
        self._open: dict[str, tuple[Writer, str, str]] = {}
        self._done: list[Shard] = []

    def write(self, rows: Sequence[Row], split: str, weight: int) -> list[Place]:
        """Add the rows of one rollout; says where each of them went."""
        if self._layout == "directory":
            return [self._alone(row, split, weight) for row in rows]
        places: dict[int, Place] = {}
        for part in dict.fromkeys(row.part for row in rows):
            name = f"{part}-{split}" if part else split
            if name not in self._open:
                self._open[name] = (self._create(name, part), part, split)
            writer = self._open[name][0]
            chosen = [number for number, row in enumerate(rows) if row.part == part]
            before = writer.rows
            digests = writer.write([rows[number].value for number in chosen], weight)
            for offset, (number, digest) in enumerate(zip(chosen, digests, strict=True)):
                places[number] = Place(writer.path.name.removesuffix(PARTIAL), before + offset, digest)
            if writer.rows >= self._shard_rows:
                self._close(name)
        return [places[number] for number in range(len(rows))]

    def _alone(self, row: Row, split: str, weight: int) -> Place:
        """Write a row into a file of its own."""
        name = f"{row.folder}/{ALONE}"
        (self._folder / row.folder).mkdir(exist_ok=True)
        writer = Lines(partial(self._folder, name))
        try:
            (digest,) = writer.write([row.value], weight)
            self._done.append(finished(self._folder, writer, row.part, split))
        except BaseException:
            writer.discard()
            raise
        return Place(name, 0, digest)

    def finish(self) -> list[Shard]:
        """Complete all files."""
        for name in list(self._open):
            self._close(name)
        return self._done

    def discard(self) -> None:
        """Remove everything that was written."""
        for writer, _, _ in self._open.values():
            writer.discard()
        for shard in self._done:
            remove_file(self._folder, f"{shard.name}{PARTIAL}")

    def _create(self, name: str, part: str) -> Writer:
        number = self.numbers.get(name, 0)
        self.numbers[name] = number + 1
        path = partial(self._folder, f"{name}-{number:05d}.{self._kind}")
        return Lines(path) if self._kind == "jsonl" else _Parquet(path, self._form.columns[part])

    def _close(self, name: str) -> None:
        self._done.append(finished(self._folder, *self._open.pop(name)))


def partial(folder: Path, name: str) -> Path:
    """What a file is called until it is complete."""
    return folder / f"{name}{PARTIAL}"


def remove_file(folder: Path, name: str) -> None:
    """Remove a file of an export, and its own directory with it."""
    path = folder / name
    path.unlink(missing_ok=True)
    if path.parent != folder and path.name.startswith(ALONE):
        with suppress(OSError):  # there is something else in it, or no such directory
            path.parent.rmdir()


def finished(folder: Path, writer: Writer, part: str, split: str) -> Shard:
    """Complete a file, which stays unseen."""
    writer.close()
    with writer.path.open("rb") as source:
        digest = file_digest(source, "sha256")
        os.fsync(source.fileno())
    name = str(writer.path.relative_to(folder)).removesuffix(PARTIAL)
    return Shard(name, part, split, writer.rows, writer.path.stat().st_size, digest.hexdigest())


def reveal(folder: Path, shards: Sequence[Shard]) -> None:
    """Let complete files be seen, all of them one after the other."""
    for shard in shards:
        partial(folder, shard.name).replace(folder / shard.name)
    for parent in {(folder / shard.name).parent for shard in shards}:
        sync_folder(parent)


def values_digest(row: Mapping[str, Any]) -> str:
    """The digest of a row of columns: of what it says, whether a null is written out or left out."""
    return sha256(canonical_bytes(_known(row), big_integers="exact")).hexdigest()


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _known(each) for name, each in value.items() if each is not None}
    return [_known(each) for each in value] if isinstance(value, list) else value


def arrow_type(column: Column) -> Any:
    """The Arrow type of a column; free-form JSON is text."""
    if isinstance(column, ListOf):
        return pa.list_(arrow_type(column.of))
    if isinstance(column, Struct):
        return pa.struct([(name, arrow_type(of)) for name, of in column.fields.items()])
    return {"text": pa.string(), "json": pa.string(), "whole": pa.int64(), "real": pa.float64(), "truth": pa.bool_()}[
        column
    ]


def as_columns(row: dict[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
    """A row whose free-form values are JSON text."""
    return {
        name: compact(value) if columns[name] == "json" and value is not None else value for name, value in row.items()
    }
