"""A span from an export request. It is stored as a canonical JSON array until its trace is complete."""

from typing import Any, NamedTuple

from agents.importers.traces.tool_join import Moment
from agents.importers.traces.traced_end import error_words


class SpanEvent(NamedTuple):
    """An event of a span, or a log record that names the span."""

    name: str
    time: int
    attributes: dict[str, Any]
    body: Any = None


class Span(NamedTuple):
    """A span."""

    trace_id: str
    span_id: str
    parent_id: str | None
    """None for a root."""
    name: str
    start: int
    """Nanoseconds since 1970; 0 if unknown."""
    end: int
    failed: bool
    """Whether its status is ERROR."""
    message: str
    """The message of its status."""
    attributes: dict[str, Any]
    events: list[SpanEvent]
    resource: dict[str, Any]
    scope: str
    """Name and version of the instrumentation."""
    more: dict[str, Any]
    """Fields that have no other place."""
    is_remote: bool = False
    """Whether the parent is known to be a span of another process."""

    @property
    def at(self) -> Moment:
        """Return its position in time: start and id."""
        return self.start, self.span_id

    @property
    def started_ms(self) -> int | None:
        """Return its start in milliseconds."""
        return self.start // 1_000_000 or None

    @property
    def ended_ms(self) -> int | None:
        """Return its end in milliseconds."""
        return self.end // 1_000_000 or None


def plain(span: Span) -> list[Any]:
    """Return the span as a JSON array."""
    return [*span[:9], [list(event) for event in span.events], *span[10:]]


def read_plain(value: list[Any]) -> Span:
    """Return the span from a JSON array."""
    return Span._make([*value[:9], [SpanEvent(*event) for event in value[9]], *value[10:]])


def trouble_of(span: Span) -> tuple[str, str | None] | None:
    """Return message and type of a span's error, or None.

    An exception event alone is not an error: it may be handled.
    """
    if not span.failed and "error.type" not in span.attributes:
        return None
    kind, message = span.attributes.get("error.type"), span.message
    for event in span.events:
        if event.name == "exception":
            kind = kind or event.attributes.get("exception.type")
            message = message or str(event.attributes.get("exception.message") or "")
    return error_words(message) or str(kind or "failed"), None if kind is None else str(kind)
