"""`braid ingest`: the lines of files become facts on the log."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.importers.errors import LineError
from agents.importers.lines import LineReader, read_line
from agents.importers.rollout_wire import is_wire
from agents.importers.slices import Slicer, rollout_of
from agents.rollouts.rollout import Fact
from schemas.lifecycle import CloseRequested, Lifecycle
from streams.config import Settings
from streams.inputs import Doubted, Rejected, check_length, read_lines, total_bytes
from streams.producing import FactWriter, TooLargeError


class Ingested(NamedTuple):
    """What was written."""

    lines: int
    bad_lines: int
    rollouts: int
    facts: dict[str, int]
    """By kind of record."""
    warnings: int = 0
    """Verdicts that will mean nothing."""
    first_warning: str = ""


async def ingest_files(
    files: Sequence[Path],
    settings: Settings,
    rejected: Rejected,
    *,
    close: bool,
    say: Callable[[float], None] = lambda _share: None,
) -> Ingested:
    """Write every line; with `close`, ask to settle what the files hold when they end. Whole branches close by themselves.

    A rollout of rollout-wire records has no opening that says how many branches to wait for, so it is asked to settle anyway.
    """
    reader, slicer = LineReader(), Slicer()
    size = total_bytes(files)
    seen: dict[str, bool] = {}
    doubted = Doubted()
    facts: Counter[str] = Counter()
    lines = read = 0
    async with FactWriter(settings, "ingest") as writer:

        async def write(fact: Fact) -> None:
            await writer.write(fact)
            facts[type(fact).__name__] += 1

        for line in read_lines(files):
            lines += 1
            read += len(line.text) + 1
            if size and lines % 2000 == 0:
                say(read / size)
            try:
                check_length(line)
                value = read_line(line.text)
                wire = "type" not in value and is_wire(value)
                read_facts = reader.read_object(value)
                doubted.note(line, read_facts)
                for fact in read_facts:
                    seen[rollout_of(fact)] = seen.get(rollout_of(fact), False) or wire
                    for ready in slicer.add(fact):
                        await write(ready)
            except LineError as error:
                rejected.add(line, error)
            except TooLargeError as error:
                rejected.add(line, LineError("", str(error)))
        for ready in slicer.flush():
            await write(ready)
        await writer.flush()
        for rollout_id, wire in seen.items():
            if close or wire:
                await write(Lifecycle(close_requested=CloseRequested(rollout_id=rollout_id, end_of_input=True)))
    return Ingested(lines, rejected.count, len(seen), dict(sorted(facts.items())), doubted.count, doubted.first)
