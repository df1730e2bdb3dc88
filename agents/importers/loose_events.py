"""Agent events in the forms they come in: camelCase or snake_case, whole or bare. Nothing that is unknown is dropped."""

from typing import Any

from pydantic import ValidationError

from agents.importers.conversation_data import check_conversation
from agents.importers.line_error import LineError
from agents.summarize.loose_fields import first
from schemas.codec.body import first_problem
from schemas.event_kinds import channel_of
from schemas.events import AgentEvent
from schemas.jsontext import compact, kind_of

_NAMES = {
    "trace_id": ("trace_id", "traceId"),
    "parent_trace_id": ("parent_trace_id", "parentTraceId"),
    "channel": ("channel",),
    "event": ("event", "kind"),
    "data": ("data",),
    "timestamp_ms": ("timestamp_ms", "timestampMs"),
}

_KNOWN = {name for names in _NAMES.values() for name in names}


def read_event(value: Any, field: str = "event") -> AgentEvent:
    """An AgentEvent from JSON. Fields beside the common ones are kept in its data. Raises LineError.

    The data of `message` and `model_call` is checked; that of other kinds is kept as it is.
    """
    if not isinstance(value, dict):
        raise LineError(field, f"expected an object, found {kind_of(value)}")
    found = {name: first(value, *names) for name, names in _NAMES.items()}
    kind = found["event"]
    if not isinstance(kind, str) or not kind:
        raise LineError(f"{field}.event", "the event's kind is missing")
    data = {} if found["data"] is None else found["data"]
    if not isinstance(data, dict):
        raise LineError(f"{field}.data", f"expected an object, found {kind_of(data)}")
    extra = {name: content for name, content in value.items() if name not in _KNOWN}
    if extra:
        data = {**extra, **data}
    text = compact(data)
    check_conversation(kind, data, text, f"{field}.data")
    channel = found["channel"] if found["channel"] is not None else channel_of(kind)
    time = found["timestamp_ms"]
    if isinstance(time, float) and time.is_integer():
        time = int(time)
    try:
        return AgentEvent(
            trace_id=found["trace_id"] if found["trace_id"] is not None else "",
            parent_trace_id=found["parent_trace_id"],
            channel=channel,
            event=kind,
            data=text,
            timestamp_ms=time,
        )
    except ValidationError as error:
        raise LineError(
            f"{field}.{first_problem(error).partition(':')[0]}", first_problem(error).partition(": ")[2]
        ) from None
