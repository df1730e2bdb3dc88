"""Chat messages, as most systems write them ({role, content, tool_calls, tool_call_id}), told to a transcript."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.line_error import LineError
from agents.importers.traces.content import Content, read_content
from agents.importers.traces.fields import array_in, as_text, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Item
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import Usage, read_usage
from schemas.jsontext import kind_of

_READ = {
    "user": ("role", "content", "timestamp"),
    "assistant": (
        "role", "content", "timestamp", "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "usage",
        "model", "id", "finish_reason",
    ),
    "tool": ("role", "content", "timestamp", "tool_call_id", "name"),
}  # fmt: skip
"""By role the members that have a place of their own; the others go to `source`."""

_ROLES = {"model": "assistant", "function": "tool"}
"""Other words for roles."""

IsError = Callable[[Mapping[str, Any], Any], Mapping[str, Any] | None]
"""The error of a tool message, from the message and its output; None where the producer marks none."""


def no_error(_message: Mapping[str, Any], _output: Any) -> None:
    """The format marks no errors."""


Aside = Callable[[TranscriptWriter, Mapping[str, Any]], bool]
"""Takes a message that is no part of the model's conversation; returns False for all others."""


def nothing_aside(_writer: TranscriptWriter, _message: Mapping[str, Any]) -> bool:
    """Every message is part of the conversation."""
    return False


class Chat(NamedTuple):
    """A conversation that was told to a transcript."""

    writer: TranscriptWriter
    system: str | None
    """The system prompt, where it stands first."""
    unreadable: list[Bad]


def tell(
    messages: Sequence[Any],
    item: Item,
    error_of: IsError = no_error,
    usage_of: Callable[[Mapping[str, Any]], Usage] = lambda message: read_usage(message.get("usage")),
    where: str = "messages",
    aside: Aside = nothing_aside,
) -> Chat:
    """Tell messages to a transcript. One that cannot be read is an `unreadable` event in its place."""
    chat = Chat(TranscriptWriter(), _system(messages), [])
    for number, message in enumerate(messages):
        try:
            if not (isinstance(message, dict) and aside(chat.writer, message)):
                _tell_one(chat, message, number, error_of, usage_of)
        except LineError as error:
            field = f"{where}[{number}].{error.field}".rstrip(".")
            chat.unreadable.append(Bad(item.file, item.position, field, error.reason, message))
            chat.writer.note("unreadable", {"position": f"{where}[{number}]", "reason": error.reason, "raw": message})
    return chat


def _system(messages: Sequence[Any]) -> str | None:
    first = messages[0] if messages else None
    if not isinstance(first, dict) or first.get("role") not in ("system", "developer"):
        return None
    content = read_content(first.get("content"))
    return content.text if not content.media else None


def _tell_one(
    chat: Chat, message: Any, number: int, error_of: IsError, usage_of: Callable[[Mapping[str, Any]], Usage]
) -> None:
    if not isinstance(message, dict):
        raise LineError("", f"expected a message, found {kind_of(message)}")
    writer, said = chat.writer, message.get("role")
    role = _ROLES.get(said, said) if isinstance(said, str) else said
    time, source = millis(message.get("timestamp")), rest_of(message, *_READ.get(str(role), ()))
    if role in ("system", "developer"):
        if number or chat.system is None:
            writer.note(
                "unreadable", {"position": f"messages[{number}]", "reason": f"a {role} message inside", "raw": message}
            )
    elif role == "user":
        writer.user(_named(message), time, source)
    elif role == "assistant":
        writer.model(
            Turn(
                read_turn_content(message), read_calls(message), text_in(message, "id"), text_in(message, "model"),
                text_in(message, "finish_reason"), usage_of(message), time, source,
            )
        )  # fmt: skip
    elif role == "tool":
        content = read_content(message.get("content"))
        output = content.text if isinstance(message.get("content"), str | list | None) else message["content"]
        writer.result(
            text_in(message, "tool_call_id"), text_in(message, "name"), output, error_of(message, output), time, source
        )
        if content.media:
            writer.note(
                "content_left_out", {"reason": "media", "count": len(content.media), "media": list(content.media)}
            )
    else:
        raise LineError("role", f"unknown: {as_text(said)}" if said is not None else "missing")


def _named(message: Mapping[str, Any]) -> Content:
    return read_content(message.get("content"))


def read_turn_content(message: Mapping[str, Any]) -> Content:
    """The content of an assistant message, with reasoning that stands beside it."""
    content = read_content(message.get("content"))
    beside = text_in(message, "reasoning_content", "reasoning", "thinking")
    if beside is None or content.reasoning:
        return content
    return content._replace(reasoning=((beside, None),))


def read_calls(message: Mapping[str, Any]) -> list[Called]:
    """The calls of an assistant message: OpenAI's, with or without `function` around them, and Anthropic's parts. Raises LineError."""
    calls = [_call(each, f"tool_calls[{number}]") for number, each in enumerate(array_in(message, "tool_calls"))]
    old = object_in(message, "function_call")
    if old:
        calls.append(_call(old, "function_call"))
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return calls + [
        Called(text_in(part, "name") or "unknown", part.get("input", part.get("arguments")), text_in(part, "id"))
        for part in parts
        if isinstance(part, dict) and part.get("type") in ("tool_use", "tool_call", "toolCall")
    ]


def _call(value: Any, field: str) -> Called:
    if not isinstance(value, dict):
        raise LineError(field, f"expected a call, found {kind_of(value)}")
    inner = object_in(value, "function") or value
    name = text_in(inner, "name")
    if name is None:
        raise LineError(f"{field}.name", "missing")
    arguments = inner.get("arguments", inner.get("args", inner.get("input")))
    return Called(name, arguments, text_in(value, "id", "call_id"))
