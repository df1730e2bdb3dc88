"""Follows a log: keeps its index up to date, and notifies open pages of changed rollouts. One for all pages."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import structlog

from schemas.errors import BraidError
from streams.log.kafka_reader import KafkaReader
from streams.log.manifest import LOG_MANIFEST
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader
from streams.log.rollout_index import RolloutIndex
from streams.log.topics import LIFECYCLE

AGAIN_S = 2.0
"""After trouble, the log is opened again this much later."""

log = structlog.get_logger()


class Source(NamedTuple):
    """A log that can be opened, and a stamp that shows whether it is still the same one."""

    open: Callable[[], LogReader]
    directory: Path | None = None

    def _manifest(self) -> Path | None:
        places = () if self.directory is None else (self.directory, self.directory.parent)
        return next((place / LOG_MANIFEST for place in places if (place / LOG_MANIFEST).is_file()), None)

    def _files(self) -> list[tuple[str, int, int]]:
        found = () if self.directory is None else self.directory.rglob("*.avro")
        return sorted((str(path), (known := path.stat()).st_size, known.st_mtime_ns) for path in found)

    def stamp(self) -> str:
        """Of files: a digest of their manifest, or of their names, sizes and times; always the same for a cluster."""
        manifest = self._manifest()
        content = manifest.read_bytes() if manifest is not None else repr(self._files()).encode()
        return sha256(content).hexdigest()

    def glance(self) -> object:
        """Changes when files do; computed often, so no file is read."""
        manifest = self._manifest()
        if manifest is None:
            return self._files()
        known = manifest.stat()
        return known.st_size, known.st_mtime_ns, known.st_ino


class Listener:
    """An open page: it waits for changes."""

    def __init__(self, rollout_id: str | None) -> None:
        self.rollout_id = rollout_id
        """None: any rollout."""
        self._woken = asyncio.Event()

    def tell(self, changed: set[str]) -> None:
        """Wake it, if the change is its own."""
        if self.rollout_id is None or self.rollout_id in changed:
            self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Whether something changed within so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class Follower:
    """The index of a log, kept up to date by one task."""

    def __init__(self, source: Source, index_path: Callable[[str], Path], refresh_s: float, say: Say = quiet) -> None:
        self._source = source
        self._index_path = index_path
        self._refresh_s = refresh_s
        self._say = say
        self.reader: LogReader | None = None
        """None while the log cannot be reached."""
        self.index: RolloutIndex | None = None
        self.trouble = "the log has not been opened yet"
        self.place = ""
        self.listeners: set[Listener] = set()
        self.generation = 0
        """Counts how often another log was opened: cached data of an earlier one is invalid."""
        self.ending = False

    async def run(self) -> None:
        """Follow the log until the task is cancelled."""
        while True:
            try:
                await self._follow()
            except (BraidError, OSError) as error:
                self.reader, self.trouble = None, str(error)
                log.warning("log_away", reason=str(error))
                await asyncio.sleep(AGAIN_S)
            except sqlite3.Error as error:  # the index is damaged, or its disk is full: it is made again
                self.reader, self.trouble = None, f"the index cannot be used ({error}); it is made again"
                log.warning("index_broken", reason=str(error))
                if self.index is not None:
                    self.index.discard()
                await asyncio.sleep(AGAIN_S)
            finally:
                if self.index is not None:
                    self.index.close()
                    self.index = None

    async def _follow(self) -> None:
        """Open the log and its index, and read on, until it is another one."""
        stamp, seen = self._source.stamp(), self._source.glance()
        async with self._source.open() as reader:
            identity = f"{reader.identity} {reader.place} {stamp}"
            self.index = RolloutIndex(self._index_path(f"{reader.identity} {reader.place}"), identity)
            self.reader, self.place, self.generation = reader, reader.place, self.generation + 1
            first = True
            while self._source.directory is None or self._source.glance() == seen:
                if isinstance(reader, KafkaReader) and not reader.partitions(LIFECYCLE):
                    await reader.look_at_topics()
                changed = await self.index.catch_up(reader, self._say)
                for listener in self.listeners if changed else ():
                    listener.tell(changed)
                if first:
                    first = False
                    await asyncio.to_thread(reader.prove)
                await asyncio.sleep(self._refresh_s)
        self.reader = None

    def end(self) -> None:
        """Release the listeners, because the server ends."""
        self.ending = True
        for listener in self.listeners:
            listener.tell({listener.rollout_id or ""})

    @contextmanager
    def listening(self, rollout_id: str | None) -> Iterator[Listener]:
        """A listener for as long as a page is open."""
        listener = Listener(rollout_id)
        self.listeners.add(listener)
        try:
            yield listener
        finally:
            self.listeners.discard(listener)
