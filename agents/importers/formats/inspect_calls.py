"""Read the model calls and tool calls of an Inspect sample from its events.

A sample's messages are the ones that its solver left in the state. Its events have more:
every call with its request messages, its tokens, and calls that a solver removed from the messages afterwards (the
`react` agent removes `submit`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.traces.fields import array_in, millis, object_in, text_in

_REFERENCE = "attachment://"
_AGENT = "agent"
_SCORERS = ("scorer", "scorers")


class ModelCall(NamedTuple):
    """A call of the model."""

    message: dict[str, Any]
    """The assistant message of the response."""
    sent: list[dict[str, Any]]
    """The messages of the request."""
    usage: Any
    finish: str | None
    time: int | None
    span: str | None
    tools: list[Any]
    config: dict[str, Any]


class Span(NamedTuple):
    """A part of the sample's run."""

    name: str
    kind: str
    parent: str | None


class SampleCalls(NamedTuple):
    """All calls of a sample, in order."""

    models: list[ModelCall]
    results: dict[str, dict[str, Any]]
    """Tool events, by call id."""
    spans: dict[str, Span]

    def by_message(self) -> dict[str, ModelCall]:
        """Return the calls by the id of the response message."""
        return {name: call for call in self.models if (name := text_in(call.message, "id")) is not None}

    def agent_of(self, span_id: str | None) -> str | None:
        """Return the nearest enclosing agent span, else the span itself. Returns None inside scorers."""
        nearest, seen, place = None, set(), span_id
        while place is not None and place not in seen and place in self.spans:
            seen.add(place)
            span = self.spans[place]
            if span.kind in _SCORERS:
                return None
            nearest = place if nearest is None and span.kind == _AGENT else nearest
            place = span.parent
        return nearest or span_id


def read_calls(sample: Mapping[str, Any]) -> SampleCalls:
    """Read the events of a sample."""
    attachments = object_in(sample, "attachments")
    pool = array_in(object_in(sample, "events_data"), "messages")
    found = SampleCalls([], {}, {})
    for event in array_in(sample, "events"):
        if not isinstance(event, dict):
            continue
        kind = event.get("event")
        if kind == "model":
            call = _model_call(event, pool, attachments)
            if call is not None:
                found.models.append(call)
        elif kind == "tool" and (name := text_in(event, "id")) is not None:
            found.results[name] = resolved(event, attachments)
        elif kind == "span_begin" and (name := text_in(event, "id")) is not None:
            span = Span(text_in(event, "name") or "", text_in(event, "type") or "", text_in(event, "parent_id"))
            found.spans[name] = span
    return found


def _model_call(event: Mapping[str, Any], pool: Sequence[Any], attachments: Mapping[str, Any]) -> ModelCall | None:
    output = object_in(event, "output")
    choices = [choice for choice in array_in(output, "choices") if isinstance(choice, dict)]
    message = object_in(choices[0], "message") if choices else {}
    if not message or event.get("error") is not None:
        return None
    tools = [tool for tool in array_in(event, "tools") if isinstance(tool, dict)]
    return ModelCall(
        resolved(message, attachments), [resolved(each, attachments) for each in _sent(event, pool)], output.get("usage"),
        text_in(choices[0], "stop_reason"), millis(event.get("completed")) or millis(event.get("timestamp")),
        text_in(event, "span_id"), tools, object_in(event, "config"),
    )  # fmt: skip


def _sent(event: Mapping[str, Any], pool: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the messages of a call: its own list, or ranges of the pool that all calls share."""
    found = array_in(event, "input")
    for each in array_in(event, "input_refs"):
        if isinstance(each, list) and len(each) == 2 and all(type(place) is int and place >= 0 for place in each):
            found = found + list(pool[each[0] : each[1]])
    return [message for message in found if isinstance(message, dict)]


def resolved(value: Any, attachments: Mapping[str, Any]) -> Any:
    """Return a value with its attachment references replaced by their texts."""
    if isinstance(value, str) and value.startswith(_REFERENCE):
        return attachments.get(value.removeprefix(_REFERENCE), value)
    if isinstance(value, list):
        return [resolved(each, attachments) for each in value]
    if isinstance(value, dict):
        return {name: resolved(each, attachments) for name, each in value.items()}
    return value
