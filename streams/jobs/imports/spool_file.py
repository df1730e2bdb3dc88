"""Bytes that are read again once: in memory while they are few, else in a file that has no name."""

import tempfile
from array import array
from functools import cached_property

IN_MEMORY = 16 * 1024 * 1024


class SpoolFile:
    """A `Spool`."""

    def __init__(self) -> None:
        self._ends = array("Q", [0])

    @cached_property
    def _file(self) -> "tempfile.SpooledTemporaryFile[bytes]":
        return tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, prefix="braid-import-")

    def put(self, data: bytes) -> int:
        """Keep some bytes; returns their number."""
        self._file.seek(self._ends[-1])
        self._file.write(data)
        self._ends.append(self._ends[-1] + len(data))
        return len(self._ends) - 2

    def get(self, number: int) -> bytes:
        """The bytes of that number."""
        begin = self._ends[number]
        self._file.seek(begin)
        return self._file.read(self._ends[number + 1] - begin)

    def close(self) -> None:
        """Forget everything."""
        if len(self._ends) > 1:
            self._file.close()
