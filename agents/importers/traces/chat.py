"""Chat messages, as most systems write them ({role, content, tool_calls, tool_call_id}), told to a transcript."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.line_error import LineError
from agents.importers.traces.content import Content, read_content
from agents.importers.traces.fields import array_in, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Item
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import Usage, read_usage
from schemas.jsontext import kind_of

_READ = (
    "role", "content", "tool_calls", "function_call", "tool_call_id", "name", "reasoning_content", "reasoning", "thinking",
    "usage", "timestamp", "model", "id",
)  # fmt: skip

IsError = Callable[[Mapping[str, Any], Any], Mapping[str, Any] | None]
"""The error of a tool message, from the message and its output; None where the producer marks none."""


def no_error(_message: Mapping[str, Any], _output: Any) -> None:
    """The format marks no errors."""


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
) -> Chat:
    """Tell messages to a transcript. One that cannot be read is an `unreadable` event in its place."""
    chat = Chat(TranscriptWriter(), _system(messages), [])
    for number, message in enumerate(messages):
        try:
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
    writer, role = chat.writer, message.get("role")
    time, source = millis(message.get("timestamp")), rest_of(message, *_READ)
    if role in ("system", "developer"):
        if number or chat.system is None:
            writer.note(
                "unreadable", {"position": f"messages[{number}]", "reason": f"a {role} message inside", "raw": message}
            )
    elif role == "user":
        writer.user(_named(message), time, source)
    elif role in ("assistant", "model"):
        writer.model(
            Turn(
                read_turn_content(message), read_calls(message), text_in(message, "id"), text_in(message, "model"),
                usage=usage_of(message), time=time, source=source,
            )
        )  # fmt: skip
    elif role in ("tool", "function"):
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
        raise LineError("role", f"unknown: {role!r}" if role is not None else "missing")


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
    calls = [read_call(each, f"tool_calls[{number}]") for number, each in enumerate(array_in(message, "tool_calls"))]
    old = object_in(message, "function_call")
    if old:
        calls.append(read_call(old, "function_call"))
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return calls + [
        Called(text_in(part, "name") or "unknown", part.get("input", part.get("arguments")), text_in(part, "id"))
        for part in parts
        if isinstance(part, dict) and part.get("type") in ("tool_use", "tool_call", "toolCall")
    ]


def read_call(value: Any, field: str) -> Called:
    """One call: {id, function {name, arguments}}, or with these beside the id. Raises LineError."""
    if not isinstance(value, dict):
        raise LineError(field, f"expected a call, found {kind_of(value)}")
    inner = object_in(value, "function") or value
    name = text_in(inner, "name")
    if name is None:
        raise LineError(f"{field}.name", "missing")
    arguments = inner.get("arguments", inner.get("args", inner.get("input")))
    return Called(name, arguments, text_in(value, "id", "call_id"))
