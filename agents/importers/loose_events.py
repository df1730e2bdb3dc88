"""Read agent events in all input forms: camelCase or snake_case, complete or bare. Unknown fields are kept."""

from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from agents.conversations.tokens import pack_data
from agents.importers.conversation_data import check_conversation
from agents.importers.line_error import LineError
from schemas.base import MAX_EXACT
from schemas.codec.body import first_problem
from schemas.codec.maker import unchecked
from schemas.conversation import ModelCall
from schemas.event_kinds import CONVERSATION, channel_of
from schemas.events import AgentEvent, EventFields
from schemas.jsontext import compact, kind_of

_KNOWN: Final = frozenset(
    ("trace_id", "traceId", "parent_trace_id", "parentTraceId", "channel", "event", "kind", "data", "timestamp_ms", "timestampMs")
)  # fmt: skip

_event: Final = unchecked(AgentEvent)
new_fields: Final = partial(tuple.__new__, EventFields)
"""Makes EventFields from a tuple without the Python call of the class's constructor."""


def read_event(value: Any, field: str = "event") -> AgentEvent:
    """Read an AgentEvent from JSON. Fields other than the common ones are kept in its data. Raises LineError.

    The data of `message` and `model_call` on their own channel is checked, and a call's tokens are packed; the data of other kinds is
    kept as it is.
    """
    return event_of(read_fields(value, field))


def event_of(fields: EventFields) -> AgentEvent:
    """Return the event for fields that were read."""
    trace_id, parent, channel, kind, data, time, tokens = fields
    return _event(
        trace_id=trace_id, parent_trace_id=parent, channel=channel, event=kind, data=data, timestamp_ms=time, tokens=tokens
    )  # fmt: skip


def read_fields(value: Any, field: str) -> EventFields:
    """Read an event's fields without the pydantic model. Raises LineError."""
    if not isinstance(value, dict):
        raise LineError(field, f"expected an object, found {kind_of(value)}")
    kind = _either(value, "event", "kind")
    if not isinstance(kind, str) or not kind:
        raise LineError(f"{field}.event", "the event's kind is missing")
    data = value.get("data")
    if data is None:
        data = {}
    elif not isinstance(data, dict):
        raise LineError(f"{field}.data", f"expected an object, found {kind_of(data)}")
    if not _KNOWN.issuperset(value):
        data = {**{name: content for name, content in value.items() if name not in _KNOWN}, **data}
    channel, time = value.get("channel"), _either(value, "timestamp_ms", "timestampMs")
    trace_id, parent = _either(value, "trace_id", "traceId"), _either(value, "parent_trace_id", "parentTraceId")
    if trace_id is None:
        trace_id = ""
    if channel is None:
        channel = channel_of(kind)
    if isinstance(time, float) and time.is_integer():
        time = int(time)
    # Events come by the million: the model only explains the errors of a bad one.
    if not (
        type(trace_id) is str
        and type(channel) is str
        and (parent is None or type(parent) is str)
        and (time is None or (type(time) is int and -MAX_EXACT <= time <= MAX_EXACT))
    ):
        raise _refused(trace_id, parent, channel, kind, time, field)
    text, tokens = compact(data), None
    if channel == CONVERSATION:
        read = check_conversation(kind, data, text, f"{field}.data")
        if isinstance(read, ModelCall) and read.tokens is not None:
            data, tokens = pack_data(data, read.tokens)
            text = compact(data)
    return new_fields((trace_id, parent, channel, kind, text, time, tokens))


def _either(value: dict[str, Any], name: str, other: str) -> Any:
    found = value.get(name)
    return value.get(other) if found is None else found


def _refused(trace_id: Any, parent: Any, channel: Any, kind: str, time: Any, field: str) -> LineError:
    """Return the error for fields, one of which has a wrong type."""
    try:
        AgentEvent(
            trace_id=trace_id, parent_trace_id=parent, channel=channel, event=kind, data="{}", timestamp_ms=time
        )  # fmt: skip
    except ValidationError as error:
        name, _, reason = first_problem(error).partition(": ")
        return LineError(f"{field}.{name}", reason)
    raise AssertionError("the model takes what the check refuses")
