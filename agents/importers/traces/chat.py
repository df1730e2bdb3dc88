"""Write chat messages in the common form ({role, content, tool_calls, tool_call_id}) to a transcript."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agents.importers.line_error import LineError
from agents.importers.traces.content import Content, read_content
from agents.importers.traces.episode_reader import tell_unreadable
from agents.importers.traces.fields import array_in, as_text, millis, object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Item
from agents.importers.traces.transcript_writer import Called, TranscriptWriter, Turn
from agents.importers.traces.usage import NONE, Usage, read_usage
from schemas.jsontext import kind_of, parse

_TURN = (
    "tool_calls", "toolCalls", "function_call", "reasoning_content", "reasoningContent", "reasoning", "thinking", "usage", "model",
    "id", "finish_reason", "stop_reason", "refusal",
)  # fmt: skip
_SAID = ("role", "content", "timestamp")
_READ = {
    "user": _SAID,
    "assistant": (*_SAID, *_TURN),
    "tool": (*_SAID, "tool_call_id", "toolCallId", "name", "tool_name", "toolName"),
}
"""The members with a place of their own, by role. Others go to `source`."""

_ROLES = {"model": "assistant", "function": "tool"}
"""Other names of roles."""

IsError = Callable[[Mapping[str, Any], Any], Mapping[str, str] | None]
"""Returns the error of a tool message, given the message and its output. Returns None if the producer marks none."""


def no_error(_message: Mapping[str, Any], _output: Any) -> None:
    """The format marks no errors."""


Aside = Callable[[TranscriptWriter, Mapping[str, Any]], bool]
"""Writes a message that is not part of the model's conversation. Returns False for all other messages."""


def nothing_aside(_writer: TranscriptWriter, _message: Mapping[str, Any]) -> bool:
    """Every message is part of the conversation."""
    return False


class Mark(NamedTuple):
    """A fact about a message that the message does not contain."""

    context: bool = False
    """Whether it is text for the model's context, not a question to it."""
    failed: bool = False
    """Whether a tool message is an error."""
    given: bool = False
    """Whether an assistant message was given to the model, not written by it."""
    role: str | None = None
    """The real role of the message."""
    is_value: bool = False
    """Whether its content is the JSON of a value that is not text."""


NO_MARK = Mark()


class Chat(NamedTuple):
    """A conversation that was written to a transcript."""

    writer: TranscriptWriter
    system: str | None
    """The system prompt, if it is the first message."""
    unreadable: list[Bad]


def tell(
    messages: Sequence[Any],
    item: Item,
    error_of: IsError = no_error,
    usage_of: Callable[[Mapping[str, Any]], Usage] = lambda message: read_usage(message.get("usage")),
    where: str = "messages",
    aside: Aside = nothing_aside,
    marks: Sequence[Mark] = (),
    spent: Usage = NONE,
) -> Chat:
    """Write messages to a transcript. An unreadable one becomes an `unreadable` event in its place.

    `spent` is the usage of the whole conversation. If the messages have no usage, the last assistant message gets it.
    """
    first = marks[0] if marks else NO_MARK
    chat = Chat(TranscriptWriter(), None if first.context else _system(messages), [])
    last = _last_turn(messages) if spent != NONE else None
    for number, message in enumerate(messages):
        try:
            if isinstance(message, Bad):
                tell_unreadable(chat.writer, message)
                continue
            if isinstance(message, dict) and aside(chat.writer, message):
                continue
            mark = marks[number] if number < len(marks) else NO_MARK
            spends = usage_of if number != last else lambda _message: spent
            _tell_one(chat, message, number, mark, error_of, spends)
        except LineError as error:
            field = f"{where}[{number}].{error.field}".rstrip(".")
            chat.unreadable.append(Bad(item.file, item.position, field, error.reason, message))
            chat.writer.note("unreadable", {"position": f"{where}[{number}]", "reason": error.reason, "raw": message})
    return chat


def _last_turn(messages: Sequence[Any]) -> int | None:
    said = [
        number
        for number, each in enumerate(messages)
        if isinstance(each, dict) and each.get("role") in ("assistant", "model")
    ]
    return said[-1] if said else None


def _system(messages: Sequence[Any]) -> str | None:
    first = messages[0] if messages else None
    if not isinstance(first, dict) or first.get("role") not in ("system", "developer"):
        return None
    content = read_content(first.get("content"))
    return content.text if not content.media else None


def _tell_one(
    chat: Chat,
    message: Any,
    number: int,
    mark: Mark,
    error_of: IsError,
    usage_of: Callable[[Mapping[str, Any]], Usage],
) -> None:
    if not isinstance(message, dict):
        raise LineError("", f"expected a message, found {kind_of(message)}")
    writer, said = chat.writer, mark.role or message.get("role")
    role = _ROLES.get(said, said) if isinstance(said, str) else said
    time, source = millis(message.get("timestamp")), rest_of(message, *_READ.get(str(role), _SAID))
    if role in ("system", "developer") or mark.context:
        if number or chat.system is None:
            writer.context(read_content(message.get("content")), time, source, str(role))
    elif mark.given:
        writer.given(read_turn_content(message), time, source, read_calls(message))
    elif role == "user":
        _tell_user(writer, message, time, source)
    elif role == "assistant":
        writer.model(
            Turn(
                read_turn_content(message), read_calls(message), text_in(message, "id"), text_in(message, "model"),
                text_in(message, "finish_reason", "stop_reason"), usage_of(message), time, source,
            )
        )  # fmt: skip
        for part in result_parts(message.get("content")):  # results of tools that the provider runs
            tell_result_part(writer, part, time)
    elif role == "tool":
        call_id, name = (
            text_in(message, "tool_call_id", "toolCallId"),
            text_in(message, "name", "tool_name", "toolName"),
        )
        content = message.get("content")
        tell_result(
            writer,
            call_id,
            name,
            json_value(content) if mark.is_value else content,
            lambda output: marked(output, failed=True) if mark.failed else error_of(message, output),
            time,
            source,
        )
    else:
        raise LineError("role", f"unknown: {as_text(said)}" if said is not None else "missing")


def json_value(content: Any) -> Any:
    """Parse a content as JSON. A content that is not JSON is returned unchanged."""
    try:
        return parse(content) if isinstance(content, str) else content
    except ValueError:
        return content


def _tell_user(
    writer: TranscriptWriter, message: Mapping[str, Any], time: int | None, source: Mapping[str, Any]
) -> None:
    """Write a user message. In Anthropic's shape, tool results are parts of it."""
    content = message.get("content")
    results = result_parts(content)
    for part in results:
        tell_result_part(writer, part, time)
    words = [part for part in content if part not in results] if results and isinstance(content, list) else content
    if words or not results:
        writer.user(read_content(words), time, source)


def result_parts(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a content that are results of calls."""
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and str(part.get("type")).endswith("tool_result")]


def tell_result_part(
    writer: TranscriptWriter, part: Mapping[str, Any], time: int | None, source: Mapping[str, Any] | None = None
) -> None:
    """Write a result in Anthropic's shape."""
    failed = part.get("is_error") is True
    left = {**(source or {}), **rest_of(part, "type", "tool_use_id", "content", "is_error")}
    tell_result(
        writer,
        text_in(part, "tool_use_id"),
        None,
        part.get("content"),
        lambda output: marked(output, failed=failed),
        time,
        left,
    )


def tell_result(
    writer: TranscriptWriter,
    call_id: str | None,
    name: str | None,
    content: Any,
    error_of: Callable[[Any], Mapping[str, str] | None],
    time: int | None = None,
    source: Mapping[str, Any] | None = None,
) -> None:
    """Write a result. Its output is text or parts, as the model received it, or any other JSON value."""
    is_words = content is None or isinstance(content, (str, list))
    read = read_content(content) if is_words else Content(None)
    output = (read.text or "") if is_words else content
    writer.result(call_id, name, output, error_of(output), time, source)
    if read.media:
        writer.note("content_left_out", {"reason": "media", "count": len(read.media), "media": list(read.media)})


def marked(output: Any, *, failed: bool) -> dict[str, str] | None:
    """Return the error of a result that its producer marks as failed."""
    return {"message": as_text(output)} if failed else None


def read_turn_content(message: Mapping[str, Any]) -> Content:
    """Return an assistant message's content, including reasoning from its other fields."""
    content = read_content(message.get("content"))
    if not content.text and (refusal := text_in(message, "refusal")) is not None:
        content = content._replace(text=refusal)
    beside = text_in(message, "reasoning_content", "reasoningContent", "reasoning", "thinking")
    if beside is None or content.reasoning:
        return content
    return content._replace(reasoning=((beside, None),))


def read_calls(message: Mapping[str, Any]) -> list[Called]:
    """Return the calls of an assistant message: OpenAI's, with or without `function`, or Anthropic's.

    Raises LineError.
    """
    given = array_in(message, "tool_calls") or array_in(message, "toolCalls")
    calls = [read_call(each, f"tool_calls[{number}]") for number, each in enumerate(given)]
    old = object_in(message, "function_call")
    if old:
        calls.append(read_call(old, "function_call"))
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return calls + [
        Called(text_in(part, "name") or "unknown", part.get("input", part.get("arguments")), text_in(part, "id"))
        for part in parts
        if isinstance(part, dict) and part.get("type") in ("tool_use", "tool_call", "toolCall", "server_tool_use")
    ]


def read_call(value: Any, field: str) -> Called:
    """Read one call: {id, function {name, arguments}}, or name and arguments on the level of the id.

    Raises LineError.
    """
    if not isinstance(value, dict):
        raise LineError(field, f"expected a call, found {kind_of(value)}")
    inner = object_in(value, "function") or value
    name = text_in(inner, "name")
    if name is None:
        raise LineError(f"{field}.name", "missing")
    arguments = inner.get("arguments", inner.get("args", inner.get("input")))
    return Called(name, arguments, text_in(value, "id", "call_id"))
