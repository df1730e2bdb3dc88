"""A journal of captures on disk: written before a call ends, emptied as the broker acknowledges.

Every capture goes through the journal, also while the broker is available. A written capture survives a kill of the
process and, after the next data sync, a crash of the machine. Records are sent in order. After a crash the journal is
sent again from its beginning; the fold ignores repeated captures by their ids.
"""

import asyncio
import os
import stat
import struct
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import structlog

from schemas.errors import BraidError
from streams.cluster.locks.file_lock import LockedError, locked

FRAME = struct.Struct(">II")
"""Before each record: its length and its CRC-32."""

SEGMENT_BYTES = 8 * 1024 * 1024
"""Bytes of a file of the journal before the next one begins. A file is deleted when all of it is acknowledged."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of records that are sent together."""

SYNC_S = 0.05
"""How long written records may wait for their data sync."""

AGAIN_S = 0.5
"""Time between two attempts to send while the broker is unavailable."""

log = structlog.get_logger()

Deliver = Callable[[list[bytes]], Awaitable[None]]
"""Sends records and returns when the broker has all of them. Raises if it is unavailable."""


class SpoolError(BraidError):
    """The spool cannot be used."""


class _Segment(NamedTuple):
    path: Path
    number: int


class Spool:
    """The journal of one proxy."""

    def __init__(self, folder: Path, limit: int, away: tuple[type[Exception], ...]) -> None:
        """`away` has the errors after which a delivery is retried."""
        self.folder = folder
        self._limit = limit
        self._away = away
        self._segments: list[_Segment] = []
        self._file: BinaryIO | None = None
        self._lock: BinaryIO | None = None
        self._written = 0
        """Bytes of the segment that is being written."""
        self._read = 0
        """Bytes of the first segment that are acknowledged."""
        self.used = 0
        """Bytes that wait to be sent."""
        self._fresh = asyncio.Event()
        self._dirty = False
        self._tasks: list[asyncio.Task[None]] = []
        self._emptied = asyncio.Event()
        self.appended = 0
        """Bytes that this process has written in total: the ticket of its last write."""
        self._acknowledged = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def is_full(self) -> bool:
        """Whether further records are refused."""
        return self.used >= self._limit

    def open(self) -> None:
        """Open the folder, with the records that an earlier process left in it. Raises SpoolError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # other users of this machine must not read it
            self._check_owner()
            self._lock = locked(self.folder / "lock")
            found = [path for path in sorted(self.folder.glob("*.captures")) if path.stem.isdigit()]
            ours = [path for path in found if path.is_file() and not path.is_symlink()]
            self._segments = [_Segment(path, int(path.stem)) for path in ours]
            self.used = self.appended = sum(path.stat().st_size for path in ours)
            self._begin(1 + max((int(path.stem) for path in found), default=-1))
        except LockedError:
            raise SpoolError(
                f"{self.folder}: another proxy uses this spool; give this one its own (proxy.spool)"
            ) from None
        except OSError as error:
            raise SpoolError(
                f"{self.folder}: {error.strerror}; set proxy.spool to a folder that can be written"
            ) from None
        if self.used:
            log.info("captures left by an earlier process", bytes=self.used)

    def _check_owner(self) -> None:
        """Check that only this user can write captures. Raises SpoolError for a folder that others can write to."""
        found = self.folder.stat()
        is_foreign = os.geteuid() not in (0, found.st_uid)
        if is_foreign or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SpoolError(
                f"{self.folder}: others may write there, and so forge captures; set proxy.spool to a folder of this user alone (chmod 700)"
            )

    def _begin(self, number: int) -> None:
        """Begin a segment. Raises OSError and leaves the previous segment unchanged."""
        segment = _Segment(self.folder / f"{number:09}.captures", number)
        begun = os.fdopen(_opened(segment.path), "wb", buffering=0)
        if self._file is not None:
            with suppress(OSError):  # bytes that are not synced are lost only if the machine crashes
                os.fdatasync(self._file.fileno())
            self._file.close()
        self._segments.append(segment)
        self._file, self._written = begun, 0

    def append(self, records: list[bytes], *, beyond: int = 0) -> bool:
        """Write records, if needed so many bytes beyond the limit; False if there is no room or the disk fails."""
        framed = b"".join(FRAME.pack(len(each), zlib.crc32(each)) + each for each in records)
        if self._file is None or self.used + len(framed) > self._limit + beyond:
            return False
        if self._written >= SEGMENT_BYTES:
            with suppress(OSError):  # no room for another file, so this one grows
                self._begin(self._segments[-1].number + 1)
        before = self._written
        try:
            self._file.write(framed)
        except OSError as error:
            log.warning("the spool cannot be written", reason=error.strerror)
            with suppress(OSError):
                self._file.truncate(before)
                self._file.seek(before)
            return False
        self._written += len(framed)
        self.used += len(framed)
        self.appended += len(framed)
        self._dirty = True
        self._emptied.clear()
        self._fresh.set()
        return True

    # -- sending -------------------------------------------------------------------------------------------------------

    def start(self, deliver: Deliver) -> None:
        """Begin to send."""
        self._fresh.set()
        self._tasks = [asyncio.create_task(self._send(deliver)), asyncio.create_task(self._sync())]

    async def stop(self, patience_s: float = 5.0) -> None:
        """Send the waiting records within a time limit; the rest stays for the next process."""
        if self.used:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), patience_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._file is not None:
            os.fdatasync(self._file.fileno())
            self._file.close()
        if self._lock is not None:
            self._lock.close()

    async def delivered(self, ticket: int) -> None:
        """Return when all records up to a ticket are on the log."""
        if self._acknowledged < ticket:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append((ticket, waiting))
            await waiting

    async def _send(self, deliver: Deliver) -> None:
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            while batch := await self._readable():
                records, size = batch
                while True:
                    try:
                        await deliver(records)
                        break
                    except self._away:
                        await asyncio.sleep(AGAIN_S)
                self._read += size
                self._note(size)
                self._collect()

    async def _readable(self) -> tuple[list[bytes], int] | None:
        """The next batch, when the disk can be read."""
        while True:
            try:
                return self._batch()
            except OSError as error:
                log.warning("the spool cannot be read", file=str(self._segments[0].path), reason=error.strerror)
                await asyncio.sleep(AGAIN_S)

    def _batch(self) -> tuple[list[bytes], int] | None:
        """The next records, and their bytes in the journal; None when there are none."""
        while True:
            first = self._segments[0]
            end = self._written if len(self._segments) == 1 else first.path.stat().st_size
            if self._read < end:
                break
            if len(self._segments) == 1:
                return None
            self._drop(first)
        with first.path.open("rb") as file:
            file.seek(self._read)
            raw = file.read(min(end - self._read, BATCH_BYTES))
            if len(raw) >= FRAME.size:
                length = FRAME.unpack_from(raw)[0]
                if length <= self._limit and len(raw) < FRAME.size + length:
                    raw += file.read(FRAME.size + length - len(raw))
        records, size = _frames(raw)
        if not records:  # a record that was being written when the machine stopped
            log.warning("the rest of a spool file cannot be read", file=str(first.path), bytes=end - self._read)
            self._note(end - self._read)
            self._read = end
            return self._batch()
        return records, size

    def _note(self, size: int) -> None:
        """Record that so many more bytes are on the log."""
        self._acknowledged += size
        left = []
        for ticket, waiting in self._waiting:
            if ticket > self._acknowledged:
                left.append((ticket, waiting))
            elif not waiting.done():
                waiting.set_result(None)
        self._waiting = left

    def _collect(self) -> None:
        """Empty the only segment when all of it is acknowledged."""
        if len(self._segments) == 1 and self._read == self._written and self._file is not None:
            self._file.truncate(0)
            self._file.seek(0)
            self._read = self._written = 0
            self.used = 0
            self._dirty = False
            self._emptied.set()

    def _drop(self, segment: _Segment) -> None:
        self.used = max(0, self.used - segment.path.stat().st_size)
        segment.path.unlink()
        self._segments.pop(0)
        self._read = 0
        if not self.used:
            self._emptied.set()

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            if self._dirty and self._file is not None:
                self._dirty = False
                with suppress(OSError, ValueError):
                    await asyncio.to_thread(os.fdatasync, self._file.fileno())


def _opened(path: Path) -> int:
    """An empty file that only this user can read."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _frames(raw: bytes) -> tuple[list[bytes], int]:
    """The whole records at the beginning of some bytes, and how many bytes they take."""
    found, at = [], 0
    while at + FRAME.size <= len(raw):
        length, check = FRAME.unpack_from(raw, at)
        record = raw[at + FRAME.size : at + FRAME.size + length]
        if len(record) < length or zlib.crc32(record) != check:
            break
        found.append(record)
        at += FRAME.size + length
    return found, at
