"""Lines of large files, spread over partitions on disk: all lines of a rollout meet in one, in their order.

A caller that works through one partition at a time needs memory for that one only.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson

from agents.importers.line_error import LineError
from agents.importers.lines import read_line
from streams.cluster.connections import partition_of
from streams.log.durable_files import open_output
from streams.log.input_lines import Line, Rejected, check_length

PARTITION_BYTES = 32 * 1024 * 1024
"""Input per partition: what is worked on at once, and so what bounds memory."""

MAX_PARTITIONS = 512


def partitions_for(size: int) -> int:
    """How many partitions an input of so many bytes is spread over."""
    return min(MAX_PARTITIONS, size // PARTITION_BYTES + 1)


def spread(
    lines: Iterable[Line],
    spool: Path,
    partitions: int,
    rejected: Rejected,
    say: Callable[[float], None],
    size: int | None,
) -> None:
    """Copy every line to the spool of its rollout's partition, with where it came from."""
    read = 0
    with ExitStack() as stack:
        outs = [stack.enter_context(open_output(spool / f"{partition}")) for partition in range(partitions)]
        for number, line in enumerate(lines):
            read += len(line.text) + 1
            if size and number % 10_000 == 0:
                say(read / size)
            try:
                check_length(line)
                out = outs[partition_of(_rollout_id(line), partitions)]
            except LineError as error:
                rejected.add(line, error)
                continue
            out.write(orjson.dumps([line.source, line.number, len(line.text)]) + b"\n" + line.text + b"\n")


def _rollout_id(line: Line) -> str:
    found = read_line(line.text).get("rollout_id")
    if not isinstance(found, str) or not found:
        raise LineError("rollout_id", "missing" if found is None else "expected a non-empty string")
    return found


def spooled(spool: Path, partition: int) -> Iterator[Line]:
    """The lines of one partition, with where they came from."""
    with (spool / f"{partition}").open("rb") as source:
        while head := source.readline():
            name, number, length = orjson.loads(head)
            yield Line(name, number, source.read(length))
            source.read(1)
