"""Bad lines of parts of an input, stored on disk until all parts are read, then joined in one order for any number of
parts.

Lines that cannot be read come first, in the order of the input; then lines that are not facts, partition by partition.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from agents.importers.line_error import LineError
from streams.log.durable_files import open_output
from streams.log.input_lines import BadLine, Line, Rejected, bad_line


class _Kept(NamedTuple):
    at: int
    """The position of the line in the input."""
    is_readable: bool
    bad: BadLine


class BadLines:
    """The bad lines of one part; its file is created with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def add(self, line: Line, error: LineError, *, is_readable: bool) -> None:
        """Keep a line; it is readable if it is JSON that names a rollout."""
        if self._file is None:
            self._file = open_output(self._path)
        self._file.write(orjson.dumps((line.at, is_readable, *bad_line(line, error))) + b"\n")

    def close(self) -> None:
        """Complete the file."""
        if self._file is not None:
            self._file.close()


def join_bad_lines(parts: Sequence[Path], rejected: Rejected) -> None:
    """Write the bad lines of all parts to the sidecar."""
    there = [path for path in parts if path.exists()]
    unreadable = merge(*(_read(path, is_readable=False) for path in there))
    for kept in chain(unreadable, *(_read(path, is_readable=True) for path in there)):
        rejected.keep(kept.bad)
    rejected.close()


def _read(path: Path, *, is_readable: bool) -> Iterator[_Kept]:
    with path.open("rb") as source:
        for line in source:
            at, readable, said, entry = orjson.loads(line)
            if readable is is_readable:
                yield _Kept(at, readable, BadLine(said, entry))
