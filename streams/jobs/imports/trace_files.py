"""The files of one PATH: a file, a folder, or standard input; .gz and .zst are unpacked on the way. Files named one by
one may be read together, like those of a folder.
"""

import gzip
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from streams.jobs.imports.eval_archive import MAGIC, opened_archive
from streams.log.input_lines import InputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEAD = 64 * 1024
"""Bytes of a file that are enough to recognise its format."""

KEPT_HEADS = 64
"""Heads in memory: several formats read each of the same files in turn."""

PARQUET = b"PAR1"
"""The first bytes of a Parquet file."""

MAX_FILES = 200_000
"""Files of one folder."""

UNREADABLE = (OSError, EOFError, zlib.error, zstd.ZstdError)
"""Raised while a file is read that is damaged."""


class TraceFiles:
    """The files below a path, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stdin: Path | None = None
        self._heads: dict[str, bytes] = {}
        self._places: dict[str, Path] = {}
        if str(path) == "-":
            self._places["stdin"] = path
        elif path.is_dir():
            self._places = {name: path / name for name in _below(path)}
        elif path.exists():
            self._places[path.name] = path
        else:
            raise InputError(f"{path}: No such file or directory; is the path right?")

    @property
    def names(self) -> list[str]:
        """The files: by their path below the folder, or by their base name."""
        return list(self._places)

    @property
    def is_file(self) -> bool:
        """Whether a single file was named."""
        return str(self.path) != "-" and not self.path.is_dir()

    def join(self, path: Path) -> None:
        """Add a file that was named together with this one."""
        name = path.name if path.name not in self._places else str(path)
        self._places[name] = path

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """A file, unpacked. Raises OSError, EOFError or ZstdError if it is damaged."""
        with self._place(name).open("rb") as raw:
            beginning = raw.peek(4)[:4]
            if beginning[:2] == b"\x1f\x8b":
                with gzip.open(raw) as unpacked:
                    yield unpacked  # type: ignore[misc]  # reads as any file does
            elif beginning == b"\x28\xb5\x2f\xfd":
                with zstd.open(raw) as unpacked:
                    yield unpacked  # type: ignore[misc]  # as above
            else:
                yield raw

    def head(self, name: str) -> bytes:
        """The first 64 KiB of a file: of its header for a log of Inspect, of its rows as JSON for Parquet; empty for a
        damaged one.
        """
        if name not in self._heads:
            try:
                self._heads[name] = self._head(name)
            except UNREADABLE:
                self._heads[name] = b""
            if len(self._heads) > KEPT_HEADS:
                del self._heads[next(iter(self._heads))]
        return self._heads[name]

    def _head(self, name: str) -> bytes:
        with self.opened(name) as source:
            head = source.read(HEAD)
        if self.is_parquet(name):
            from streams.jobs.imports.parquet_rows import parquet_head

            with self.opened(name) as source:
                return parquet_head(source, HEAD)
        if not head.startswith(MAGIC):
            return head
        with self.opened(name) as source, opened_archive(source) as archive:
            header = next((member.name for member in archive.members() if member.is_header), None)
            return head if header is None else archive.read(header, HEAD)

    def is_parquet(self, name: str) -> bool:
        """Whether a file is of that kind, by its first bytes."""
        with self._place(name).open("rb") as raw:
            return raw.read(4) == PARQUET

    def size(self, name: str) -> int:
        """Bytes on disk."""
        return self._place(name).stat().st_size

    def close(self) -> None:
        """Remove the copy of standard input."""
        if self._stdin is not None:
            self._stdin.unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        return self._standard_input() if str(self.path) == "-" else self._places[name]

    def _standard_input(self) -> Path:
        """Standard input as a file: formats look at its head, and some read it twice."""
        if self._stdin is None:
            with tempfile.NamedTemporaryFile(prefix="braid-import-", delete=False) as copy:
                self._stdin = Path(copy.name)
                shutil.copyfileobj(sys.stdin.buffer, copy)
        return self._stdin


def _below(folder: Path) -> list[str]:
    """All files of a folder by their path in it, sorted; links to folders and hidden files are passed over."""
    found = []
    for place in folder.rglob("*"):
        name = place.relative_to(folder).as_posix()
        if place.is_file() and not any(part.startswith(".") for part in name.split("/")):
            found.append(name)
        if len(found) > MAX_FILES:
            raise InputError(f"{folder}: more than {MAX_FILES} files; name the folders inside")
    return sorted(found)
