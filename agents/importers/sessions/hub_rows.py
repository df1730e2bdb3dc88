"""Rows of trace datasets on the Hugging Face Hub: each row has a whole session in `trace`.

`trace` is the text of the session's file, or the same as JSON. The column `messages` lacks the calls and is not read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from agents.importers.traces.episode_reader import first_value, guarded, guarded_all
from agents.importers.traces.format import Bad, Episode, Item, Options, Read, Reading
from schemas.jsontext import parse_unique

ReadLines = Callable[[Sequence[Item], Options], Iterable[Episode | Bad]]


def is_hub_row(value: Any) -> bool:
    """Return whether a value is a row that contains a session."""
    return isinstance(value, dict) and isinstance(value.get("trace"), str | list) and "harness" in value


def per_session(read_session: ReadLines) -> Read:
    """Return a reader of sessions: the lines of a file or of a row. It keeps one session in memory."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        for _, group in groupby(items, key=lambda item: item.file):
            yield from _each(group, options, read_session)

    return read


def per_family(read_files: ReadLines) -> Read:
    """Return a reader of related files, which keeps all of them in memory. Each row is a session of its own."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        yield from _each(items, options, read_files)

    return read


def _each(items: Iterable[Item], options: Options, read_lines: ReadLines) -> Reading:
    lines: list[Item] = []
    for item in items:
        if is_hub_row(item.value):
            found = list(_lines(item))
            yield from (line.value for line in found if isinstance(line.value, Bad))
            yield from guarded(item, read_lines(found, options)) if found else (_empty(item),)
        else:
            lines.append(item)
    if lines:
        yield from guarded_all(lines, read_lines(lines, options))


def _empty(row: Item) -> Bad:
    return Bad(row.file, row.position, "trace", "a session without lines")


def _lines(row: Item) -> Iterator[Item]:
    trace = row.value["trace"]
    if isinstance(trace, str) and trace.lstrip().startswith(('"', "[")):
        try:
            trace = parse_unique(trace)
        except ValueError as error:
            yield Item(
                row.file, row.position, Bad(row.file, row.position, "trace", f"not JSON: {error}", trace), row.run
            )
            return
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
    """Return a head with searchable session keys. In a row they are in a string inside a string."""
    if first_value(head)[:1] == b"{" and b'"trace"' in head and b'"harness"' in head:
        return head.partition(b'"trace"')[2].replace(b"\\", b"")
    return head
