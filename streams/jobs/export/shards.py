"""Files of rows, JSON lines or Parquet, that become visible together, when all of them are complete.

A rollout's rows are never spread over two files. Until `reveal` every file has a temporary name, so that a failure
before it leaves no partial file visible.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import file_digest
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from agents.formats.shape import FileKind, Format, Layout, Row
from streams.jobs.export.row_file import Lines, Writer
from streams.log.durable_files import PARTIAL, sync_folder

ALONE = ("trajectory.json", "session.jsonl")
"""The files of rows that have a directory of their own; a format uses one of them."""


class Shard(NamedTuple):
    """A complete file."""

    name: str
    part: str
    split: str
    rows: int
    bytes: int
    sha256: str


class Place(NamedTuple):
    """The position of a row, and its digest: of its line, or of its values in a Parquet file."""

    file: str
    row: int
    sha256: str


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
        """Add the rows of one rollout; return the position of each."""
        if self._layout == "directory":
            folders = groupby(rows, key=lambda row: row.folder)
            return [place for _, alone in folders for place in self._alone(list(alone), split, weight)]
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

    def _alone(self, rows: Sequence[Row], split: str, weight: int) -> list[Place]:
        """Write rows into a file of their own."""
        name = f"{rows[0].folder}/{self._form.alone}"
        (self._folder / rows[0].folder).mkdir(exist_ok=True)
        writer = Lines(partial(self._folder, name))
        try:
            digests = writer.write([row.value for row in rows], weight)
            self._done.append(finished(self._folder, writer, rows[0].part, split))
        except BaseException:
            writer.discard()
            raise
        return [Place(name, number, digest) for number, digest in enumerate(digests)]

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
        if self._kind == "jsonl":
            return Lines(path)
        from streams.jobs.export.parquet_file import ParquetFile

        return ParquetFile(path, self._form.columns[part])

    def _close(self, name: str) -> None:
        self._done.append(finished(self._folder, *self._open.pop(name)))


def partial(folder: Path, name: str) -> Path:
    """The name of a file until it is complete."""
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
    """Publish complete files, one after the other."""
    for shard in shards:
        partial(folder, shard.name).replace(folder / shard.name)
    for parent in {(folder / shard.name).parent for shard in shards}:
        sync_folder(parent)
