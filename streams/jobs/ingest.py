"""`braid ingest`: the lines of files become facts on the log.

Openings are written as held, and each rollout is released when all its lines are on the log: so no line is late,
whatever the worker has read by then, and the result is that of `braid run`. Input of more than one partition's size
(`streams/jobs/spool.py`) is sorted by rollout on disk first, so a rollout is released soon after its first line was
written.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.facts.fact import Fact, rollout_of
from agents.importers.line_error import LineError
from agents.importers.lines import LineReader, read_line
from agents.importers.slices import Slicer
from agents.importers.wire_reader import is_wire
from schemas.lifecycle import CloseRequested, Lifecycle
from streams.cluster.config import Settings
from streams.jobs.partition_count import partitions_for, total_bytes
from streams.jobs.spool import spooled, spread
from streams.jobs.verdict_trust import VerdictTrust, verdict_trust
from streams.log.envelope import TooLargeError
from streams.log.input_lines import Doubted, Line, Rejected, check_length, read_lines
from streams.log.kafka_writer import FactWriter

SAY_EVERY = 2000
"""Lines between two reports of progress."""


class Ingested(NamedTuple):
    """The counts of records written."""

    lines: int
    bad_lines: int
    rollouts: int
    facts: dict[str, int]
    """Number of facts by kind of record."""
    warnings: int = 0
    """Verdicts that have no effect."""
    first_warning: str = ""
    untrusted: int = 0
    """Verdicts that no trusted key has signed: the worker makes dead letters of them."""


async def ingest_files(
    files: Sequence[Path],
    settings: Settings,
    rejected: Rejected,
    *,
    close: bool,
    say: Callable[[float], None] = lambda _share: None,
    trust: VerdictTrust | None = None,
) -> Ingested:
    """Write every line; then release the rollouts of the files, so that each settles when it is complete; with `close`,
    settle them anyway.

    A rollout of rollout-wire records has no opening with a number of branches, so it is closed explicitly.
    """
    size = total_bytes(files)
    partitions = 1 if size is None else partitions_for(size)
    async with FactWriter(settings, "ingest") as writer:
        ingest = _Ingest(writer, rejected, trust or verdict_trust(settings, vouches=False), size, close=close, say=say)
        if partitions == 1:
            await ingest.take(read_lines(files))
        else:
            with tempfile.TemporaryDirectory(prefix="braid-ingest-") as spool:
                await asyncio.to_thread(
                    spread, read_lines(files), Path(spool), partitions, rejected.add, lambda _share: None, size
                )
                bad = rejected.count
                for partition in range(partitions):
                    await ingest.take(spooled(Path(spool), partition))
                ingest.lines += bad
    return Ingested(
        ingest.lines,
        rejected.count,
        ingest.rollouts,
        dict(sorted(ingest.facts.items())),
        ingest.doubted.count,
        ingest.doubted.first,
        ingest.trust.count,
    )


class _Ingest:
    """Writes lines, some rollouts at a time."""

    def __init__(
        self, writer: FactWriter, rejected: Rejected, trust: VerdictTrust, size: int | None, *, close: bool,
        say: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._writer = writer
        self._rejected = rejected
        self.trust = trust
        self._size = size
        self._close = close
        self._say = say
        self._read = 0
        self.lines = 0
        self.rollouts = 0
        self.facts: Counter[str] = Counter()
        self.doubted = Doubted()

    async def take(self, lines: Iterable[Line]) -> None:
        """Write all lines of some rollouts, wait until the broker has them, and end the rollouts."""
        reader, slicer = LineReader(), Slicer()
        wire: dict[str, bool] = {}
        ends: dict[str, list[Fact]] = {}
        for line in lines:
            self._count(line)
            try:
                check_length(line)
                value = read_line(line.text)
                facts = [self.trust.vouched(fact) for fact in reader.read_object(value)]
                self.doubted.note(line, facts)
                for fact in facts:
                    self.trust.refusal(line, fact)
                    rollout_id = rollout_of(fact)
                    wire[rollout_id] = wire.get(rollout_id, False) or ("type" not in value and is_wire(value))
                    if isinstance(fact, Lifecycle) and fact.opened is None:
                        ends.setdefault(rollout_id, []).append(fact)
                        continue
                    for ready in slicer.add(_held(fact)):
                        await self._write(ready)
            except LineError as error:
                self._rejected.add(line, error)
            except TooLargeError as error:
                self._rejected.add(line, LineError("", str(error)))
        for ready in slicer.flush():
            await self._write(ready)
        await self._writer.flush()
        self.rollouts += len(wire)
        for rollout_id, whole in wire.items():
            said = ends.get(rollout_id, [])
            if not any(_is_final(end) for end in said):
                said.append(_end(rollout_id, when_complete=not (self._close or whole)))
            for end in said:
                await self._write(end)

    def _count(self, line: Line) -> None:
        self.lines += 1
        self._read += len(line.text) + 1
        if self._size and self.lines % SAY_EVERY == 0:
            self._say(self._read / self._size)

    async def _write(self, fact: Fact) -> None:
        await self._writer.write(fact)
        self.facts[type(fact).__name__] += 1


def _held(fact: Fact) -> Fact:
    """An opening, marked as held; any other fact unchanged."""
    if isinstance(fact, Lifecycle) and fact.opened is not None:
        return Lifecycle(opened=fact.opened.model_copy(update={"held": True}))
    return fact


def _is_final(fact: Fact) -> bool:
    """Whether a rollout settles by it in any case: it is cancelled, or closed whether or not it is complete."""
    if not isinstance(fact, Lifecycle):
        return False
    asked = fact.close_requested
    return fact.cancelled is not None or (asked is not None and not asked.when_complete)


def _end(rollout_id: str, *, when_complete: bool) -> Fact:
    return Lifecycle(
        close_requested=CloseRequested(rollout_id=rollout_id, end_of_input=True, when_complete=when_complete)
    )
