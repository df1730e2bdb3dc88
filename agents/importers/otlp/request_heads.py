"""Read only ids, parents and ends of the spans in a body, to detect when a trace is complete."""

from agents.importers.line_error import LineError
from agents.importers.otlp.request_split import COMPILED, read_split
from agents.importers.otlp.spans import Span

if COMPILED:
    from agents.importers.otlp._wire import heads

Head = tuple[bytes, bytes | None, bool]
"""A span's id, its parent's id (None for a root), and whether the span has ended."""


def heads_of(body: bytes) -> list[Head]:
    """Return the heads of a body that a split produced, or none for an unreadable body."""
    if COMPILED and body[:1] != b"[":
        found = heads(body)
        if found is not None:
            return found
    try:
        spans = read_split(body)
    except (LineError, ValueError, TypeError):
        return []
    return [
        (bytes.fromhex(each.span_id), None if each.parent_id is None else bytes.fromhex(each.parent_id), each.end > 0)
        for each in spans
        if isinstance(each, Span)
    ]
