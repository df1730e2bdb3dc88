"""LangChain's message forms: constructors (`lc`), plain objects with a `type`, pairs of role and text, or OpenAI's
messages.
"""

from collections.abc import Mapping
from typing import Any

from agents.importers.traces.fields import array_in, object_in, rest_of, text_in

_ROLES = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool", "developer": "developer",
    "user": "user", "assistant": "assistant",
}  # fmt: skip
_READ = (
    "type",
    "role",
    "content",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_id",
    "name",
    "status",
    "additional_kwargs",
    "example",
)


def chat_message(value: Any) -> Any:
    """Return the message as a chat message. A value of another shape is returned unchanged."""
    if isinstance(value, str):
        return {"role": "user", "content": value}
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return {"role": _ROLES.get(value[0], value[0]), "content": value[1]}
    if not isinstance(value, dict):
        return value
    fields, kind = _fields(value)
    role = _ROLES.get(kind) if kind is not None else None
    if role is None:
        return value
    return _chat(fields, role)


def _fields(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """Return the fields and the kind of a message."""
    if value.get("lc") is not None and isinstance(value.get("kwargs"), dict):
        kwargs = value["kwargs"]
        names = value.get("id")
        name = str(names[-1]) if isinstance(names, list) and names else ""
        kind = name.removesuffix("Chunk").removesuffix("Message").lower()
        return kwargs, kind if kind in _ROLES else text_in(kwargs, "type", "role")
    if isinstance(value.get("data"), dict) and "type" in value:
        return value["data"], text_in(value, "type")
    return value, text_in(value, "type") if text_in(value, "role") is None else text_in(value, "role")


def _chat(fields: Mapping[str, Any], role: str) -> dict[str, Any]:
    more = object_in(fields, "additional_kwargs")
    message = {"role": role, "content": fields.get("content"), **rest_of(fields, *_READ)}
    calls = [*array_in(fields, "tool_calls"), *array_in(fields, "invalid_tool_calls")]
    written = array_in(more, "tool_calls")
    if calls or written:
        message["tool_calls"] = (
            written if len(written) >= len(calls) else calls
        )  # with the arguments as the model wrote them
    for name in ("function_call", "reasoning_content", "refusal"):
        if more.get(name):
            message[name] = more[name]
    for name in ("tool_call_id", "name", "status"):
        if fields.get(name) is not None:
            message[name] = fields[name]
    return message
