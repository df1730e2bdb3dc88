"""Lines of large files, spread over partitions on disk: all lines of a rollout meet in one, in their order.

A caller that works through one partition at a time needs memory for that one only. A line is parsed here only if its
rollout cannot be found without that: the caller parses it anyway.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

import orjson

from agents.importers.line_error import LineError
from agents.importers.lines import read_line
from streams.cluster.connections import partition_of
from streams.log.durable_files import open_output
from streams.log.input_lines import Line, check_length

SAY_EVERY = 10_000
"""Lines between two reports of progress."""

_BEGINNING = re.compile(
    rb'\s*+\{\s*+(?:(?!"rollout_id")"[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[-+.\w]++)\s*+,\s*+)*+"rollout_id"\s*+:\s*+"([^"\\]++)"'
)
"""An object whose first members are texts or numbers, up to its rollout_id.

If the line is one JSON object without repeated keys, this is its rollout. Otherwise it is not a fact in any partition.
"""


def spread(
    lines: Iterable[Line],
    spool: Path,
    partitions: int,
    refuse: Callable[[Line, LineError], None],
    say: Callable[[float], None],
    size: int | None,
) -> list[int]:
    """Copy every line to the spool of its rollout's partition, with its origin; return the bytes of each partition.

    `refuse` gets the lines that name no rollout.
    """
    read, number = 0, 0
    partition_at = lru_cache(maxsize=4096)(lambda rollout_id: partition_of(rollout_id, partitions))
    with ExitStack() as stack:
        outs = [stack.enter_context(open_output(spool / f"{partition}")) for partition in range(partitions)]
        for number, line in enumerate(lines):
            text = line.text
            read += len(text) + 1
            if size and number % SAY_EVERY == 0:
                say(read / size)
            try:
                out = outs[partition_at(_rollout_id(line))]
            except LineError as error:
                refuse(line._replace(at=number), error)
                continue
            out.write(b"%b\n%b\n" % (orjson.dumps((line.source, line.number, len(text), number)), text))
        return [out.tell() for out in outs]


def _rollout_id(line: Line) -> str:
    check_length(line)
    if begun := _BEGINNING.match(line.text):
        try:
            return begun[1].decode()
        except UnicodeDecodeError:
            pass  # the reader adds the position
    found = read_line(line.text).get("rollout_id")
    if not isinstance(found, str) or not found:
        raise LineError("rollout_id", "missing" if found is None else "expected a non-empty string")
    return found


def spooled(spool: Path, partition: int) -> Iterator[Line]:
    """The lines of one partition, with their origins."""
    with (spool / f"{partition}").open("rb") as source:
        while head := source.readline():
            name, number, length, at = orjson.loads(head)
            yield Line(name, number, source.read(length), at=at)
            source.read(1)
