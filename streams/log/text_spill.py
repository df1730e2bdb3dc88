"""Long texts of open rollouts, within a bound of memory: beyond it they go to a scratch file.

The file is a cache. It has no name, disappears with the process, and is emptied whenever no open rollout needs it. A
text is always returned unchanged.
"""

import os
import tempfile
from functools import cache
from typing import IO

from agents.conversations.held_text import HeldText

MAX_BYTES = 64 * 1024 * 1024
"""Of texts in memory, over all open rollouts of a process."""


class TextSpill:
    """Keeps texts in memory up to a bound, and in a scratch file beyond it."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.in_memory = 0
        """Bytes of texts in memory."""
        self.in_file = 0
        """Texts in the file."""
        self._max_bytes = max_bytes
        self._file: IO[bytes] | None = None
        self._end = 0

    def hold(self, text: str) -> HeldText:
        """Store a text; return a handle that reads it back. The text is released with its handle."""
        raw = text.encode()
        if self.in_memory + len(raw) <= self._max_bytes:
            return _InMemory(self, raw)
        return _InFile(self, raw)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, raw: bytes) -> int:
        """Append to the file; returns the place."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="braid-texts-", buffering=0)  # noqa: SIM115 - as long as the process
        if self.in_file == 0:
            self._file.truncate(0)
            self._end = 0
        place, view = self._end, memoryview(raw)
        while view:
            written = os.pwrite(self._file.fileno(), view, self._end)
            self._end += written
            view = view[written:]
        return place

    def _read(self, place: int, size: int) -> bytes:
        assert self._file is not None
        parts = []
        while size:
            part = os.pread(self._file.fileno(), size, place)
            if not part:
                raise OSError(f"the scratch file of long texts ends before byte {place + size:,}")
            parts.append(part)
            place, size = place + len(part), size - len(part)
        return b"".join(parts)


class _InMemory:
    """A text in memory: as bytes, which are smaller than most strings."""

    __slots__ = ("_raw", "_spill")

    def __init__(self, spill: TextSpill, raw: bytes) -> None:
        self._spill, self._raw = spill, raw
        spill.in_memory += len(raw)

    def text(self) -> str:
        """Return the text."""
        return self._raw.decode()

    def __del__(self) -> None:
        self._spill.in_memory -= len(self._raw)


class _InFile:
    """A text in the scratch file."""

    __slots__ = ("_place", "_size", "_spill")

    def __init__(self, spill: TextSpill, raw: bytes) -> None:
        self._spill, self._size = spill, len(raw)
        self._place = spill._write(raw)
        spill.in_file += 1

    def text(self) -> str:
        """Return the text."""
        return self._spill._read(self._place, self._size).decode()

    def __del__(self) -> None:
        if hasattr(self, "_place"):  # not when the disk was full
            self._spill.in_file -= 1


@cache
def process_texts() -> TextSpill:
    """The texts of this process."""
    return TextSpill()
