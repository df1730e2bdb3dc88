"""The log that a fork writes, and reads again when it is resumed: Kafka, or a file of lines for people without a
broker.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import orjson
from aiokafka.errors import KafkaError

from agents.conversations.token_deltas import TokenDeltas
from agents.facts.fact import Fact
from agents.fork.fork_error import ForkError
from agents.fork.history import History, read_history
from agents.fork.log import Log
from agents.importers.line_error import LineError
from agents.importers.line_writer import lines_of
from agents.importers.lines import LineReader
from agents.importers.slices import fitting, with_deltas
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from streams.cluster.config import Settings
from streams.cluster.locks.file_lock import LockedError, locked
from streams.log.durable_files import naming
from streams.log.input_lines import read_lines
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.topics import AGENT_EVENTS, CLOSURES, LIFECYCLE


class ForkLog(Log, Protocol):
    """A log that can also be read."""

    @property
    def place(self) -> str:
        """The place of the log, for people."""

    async def history(self, rollout_id: str) -> History:
        """The records of a rollout."""


class KafkaForkLog:
    """The topics."""

    def __init__(self, writer: FactWriter) -> None:
        self.place = f"Kafka at {writer.settings.kafka}"
        self._writer = writer
        self._deltas = TokenDeltas()

    async def append(self, fact: Fact) -> None:
        """Add a fact; all replicas have it when this returns."""
        if isinstance(fact, AgentEvents):
            fact = with_deltas(self._deltas, fact)
        try:
            await self._writer.append(fact)
        except KafkaError as error:
            raise ForkError(
                f"{self.place} does not take records any more: {error}; when it does, --resume runs what is unfinished"
            ) from None

    async def history(self, rollout_id: str) -> History:
        """The records of a rollout on the topics."""
        facts: list[Fact] = []
        async with KafkaReader(self._writer.settings) as log:
            async for placed in log.records([LIFECYCLE, AGENT_EVENTS, CLOSURES], rollout_id=rollout_id):
                try:
                    facts.append(await log.decode(placed))  # type: ignore[arg-type]  # the fact topics hold facts
                except DecodeError:
                    continue  # `braid dead-letters list` reports it
        return read_history(facts, rollout_id)


@asynccontextmanager
async def kafka_log(settings: Settings) -> AsyncIterator[KafkaForkLog]:
    """Kafka, as configured."""
    async with FactWriter(settings, "fork") as writer:
        yield KafkaForkLog(writer)


class FileLog:
    """A file of the lines that `braid run` and `braid ingest` read; every fact is on disk before the next."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path
        self._lock = asyncio.Lock()

    async def append(self, fact: Fact) -> None:
        """Add a fact; it is on disk when this returns."""
        if isinstance(fact, AgentEvents):
            fact = fitting(fact)
        lines = b"".join(orjson.dumps(line) + b"\n" for line in lines_of(fact))
        async with self._lock:
            await asyncio.to_thread(self._write, lines)

    def _write(self, lines: bytes) -> None:
        with naming(self._path), self._path.open("ab") as out:
            out.write(lines)
            out.flush()
            os.fsync(out.fileno())

    async def history(self, rollout_id: str) -> History:
        """The records of a rollout in the file."""
        return await asyncio.to_thread(self._history, rollout_id)

    def _history(self, rollout_id: str) -> History:
        reader, facts = LineReader(), []
        for line in read_lines([self._path]) if self._path.exists() else ():
            try:
                facts += reader.read(line.text)
            except LineError as error:
                raise ForkError(f"{line.place}: {error}") from None
        return read_history(facts, rollout_id)


@asynccontextmanager
async def file_log(path: Path) -> AsyncIterator[FileLog]:
    """A file; a last line that a killed runner left half is cut off. One runner at a time."""
    try:
        held = locked(path)
    except LockedError:
        raise ForkError(f"{path}: another fork writes to it") from None
    with held:
        held.seek(0)
        whole = held.read().rfind(b"\n") + 1
        held.truncate(whole)
        yield FileLog(path)
