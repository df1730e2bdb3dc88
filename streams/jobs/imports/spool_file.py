"""Bytes that are read again once: in memory while they are few, else in a file that has no name."""

import tempfile
from array import array
from typing import IO

IN_MEMORY = 16 * 1024 * 1024


class SpoolFile:
    """A `Spool`."""

    def __init__(self) -> None:
        self._opened: IO[bytes] | None = None
        self._ends = array("Q", [0])
        self._at_end = True
        """Whether the file position is at the end: a seek would flush its buffer."""

    @property
    def _file(self) -> IO[bytes]:
        """The file, opened when something is put into it: an import may be refused before."""
        if self._opened is None:
            self._opened = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, prefix="braid-import-")  # noqa: SIM115 - closed below
        return self._opened

    def put(self, data: bytes) -> int:
        """Keep some bytes; returns their number."""
        if not self._at_end:
            self._file.seek(self._ends[-1])
            self._at_end = True
        self._file.write(data)
        self._ends.append(self._ends[-1] + len(data))
        return len(self._ends) - 2

    def get(self, number: int) -> bytes:
        """The bytes of that number."""
        begin = self._ends[number]
        self._file.seek(begin)
        self._at_end = False
        return self._file.read(self._ends[number + 1] - begin)

    def close(self) -> None:
        """Forget everything."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
