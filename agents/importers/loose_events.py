"""Agent events in the forms they come in: camelCase or snake_case, whole or bare. Nothing that is unknown is dropped."""

from typing import Any, Final

from pydantic import ValidationError

from agents.importers.conversation_data import check_conversation
from agents.importers.line_error import LineError
from agents.summarize.loose_fields import first
from schemas.base import MAX_EXACT
from schemas.codec.body import first_problem
from schemas.codec.maker import unchecked
from schemas.event_kinds import CONVERSATION, channel_of
from schemas.events import AgentEvent
from schemas.jsontext import compact, kind_of

_KNOWN: Final = frozenset(
    ("trace_id", "traceId", "parent_trace_id", "parentTraceId", "channel", "event", "kind", "data", "timestamp_ms", "timestampMs")
)  # fmt: skip

_event: Final = unchecked(AgentEvent)


def read_event(value: Any, field: str = "event") -> AgentEvent:
    """An AgentEvent from JSON. Fields beside the common ones are kept in its data. Raises LineError.

    The data of `message` and `model_call` on their own channel is checked; that of other kinds is kept as it is.
    """
    if not isinstance(value, dict):
        raise LineError(field, f"expected an object, found {kind_of(value)}")
    kind = first(value, "event", "kind")
    if not isinstance(kind, str) or not kind:
        raise LineError(f"{field}.event", "the event's kind is missing")
    data = value.get("data")
    if data is None:
        data = {}
    elif not isinstance(data, dict):
        raise LineError(f"{field}.data", f"expected an object, found {kind_of(data)}")
    if not _KNOWN.issuperset(value):
        data = {**{name: content for name, content in value.items() if name not in _KNOWN}, **data}
    text = compact(data)
    channel, time = value.get("channel"), first(value, "timestamp_ms", "timestampMs")
    channel = channel_of(kind) if channel is None else channel
    if channel == CONVERSATION:
        check_conversation(kind, data, text, f"{field}.data")
    trace_id, parent = first(value, "trace_id", "traceId"), first(value, "parent_trace_id", "parentTraceId")
    return _checked(
        {
            "trace_id": "" if trace_id is None else trace_id,
            "parent_trace_id": parent,
            "channel": channel,
            "event": kind,
            "data": text,
            "timestamp_ms": int(time) if isinstance(time, float) and time.is_integer() else time,
        },
        field,
    )


def _checked(fields: dict[str, Any], field: str) -> AgentEvent:
    """The event of these fields. Events come by the million: the model is asked only what is wrong with one. Raises LineError."""
    parent, time = fields["parent_trace_id"], fields["timestamp_ms"]
    if (
        type(fields["trace_id"]) is str
        and type(fields["channel"]) is str
        and (parent is None or type(parent) is str)
        and (time is None or (type(time) is int and -MAX_EXACT <= time <= MAX_EXACT))
    ):
        return _event(**fields)
    try:
        return AgentEvent(**fields)
    except ValidationError as error:
        name, _, reason = first_problem(error).partition(": ")
        raise LineError(f"{field}.{name}", reason) from None
