"""Rows of trace datasets of the Hugging Face Hub: a row has a whole session in `trace`.

`trace` is the text of the session's file, or JSON of it. `messages` beside it has lost the calls and is not read.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from agents.importers.traces.format import Bad, Item
from agents.importers.traces.reading import first_value
from schemas.jsontext import parse_unique


def is_hub_row(value: Any) -> bool:
    """Whether a value is a row with a session in it."""
    return isinstance(value, dict) and isinstance(value.get("trace"), str | list) and "harness" in value


def sessions(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The lines of each session: those of a file, or those in a row."""
    for _, group in groupby(items, key=lambda item: item.file):
        lines: list[Item] = []
        for item in group:
            if is_hub_row(item.value):
                yield list(_lines(item))
            else:
                lines.append(item)
        if lines:
            yield lines


def _lines(row: Item) -> Iterator[Item]:
    trace = row.value["trace"]
    if isinstance(trace, str) and trace.lstrip().startswith(('"', "[")):
        trace = parse_unique(trace)
    lines = trace.splitlines() if isinstance(trace, str) else trace if isinstance(trace, list) else [trace]
    run = row.value.get("session_id")
    for number, line in enumerate(lines, start=1):
        position = f"{row.position} line {number}"
        try:
            value = parse_unique(line) if isinstance(line, str) else line
        except ValueError as error:
            value = Bad(row.file, position, "trace", f"not JSON: {error}", line)
        if line != "":
            yield Item(row.file, position, value, run if isinstance(run, str) and run else row.run)


def session_head(head: bytes) -> bytes:
    """A head in which keys of the session can be looked for: a row has it as a text inside of a text."""
    if first_value(head)[:1] == b"{" and b'"trace"' in head and b'"harness"' in head:
        return head.partition(b'"trace"')[2].replace(b"\\", b"")
    return head


def is_hub_head(head: bytes) -> bool:
    """Whether a head is that of rows with sessions in them."""
    return b'"trace"' in head and b'"harness"' in head and b'"session_id"' in head
