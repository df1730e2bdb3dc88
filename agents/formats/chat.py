"""Chat messages and tools as trainers write them: OpenAI's shape, arguments and tool lists as JSON text.

Only `message` turns a message of a row into a message of a format; a format's `Speech` lists the fields it has.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from agents.formats.shape import CHAT, PLAIN, Speech, Style
from schemas.jsontext import compact, parse
from schemas.training import Message, PpoRecord, ToolCall


def message(said: Message, speech: Speech = CHAT, style: Style = PLAIN) -> dict[str, Any]:
    """A message as a format writes it, without the fields that do not apply to it.

    `content` stays even when it is null: loaders look for it. Parts with media are kept in place, by reference.
    """
    role = "system" if said.role == "developer" and not speech.developer else said.role
    shown: dict[str, Any] = {"role": role, "content": parse(said.parts or "") if has_media(said) else said.content}
    if speech.reasoning and said.reasoning_content is not None:
        shown["reasoning_content"] = said.reasoning_content
    if said.tool_calls:
        shown["tool_calls"] = [_call(call, style) for call in said.tool_calls]
    if said.tool_call_id is not None:
        shown["tool_call_id"] = said.tool_call_id
    if speech.names and said.name is not None:
        shown["name"] = said.name
    return shown


def messages(said: Iterable[Message], speech: Speech = CHAT, style: Style = PLAIN) -> list[dict[str, Any]]:
    """Messages, in order."""
    return [message(each, speech, style) for each in said]


def _call(call: ToolCall, style: Style) -> dict[str, Any]:
    value = arguments(call.function.arguments) if style.arguments == "object" else None
    chosen = value if isinstance(value, dict) else call.function.arguments
    return {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": chosen}}


def has_media(said: Message) -> bool:
    """Whether a content has more than text."""
    return said.parts is not None and any(part.get("type") != "text" for part in parse(said.parts))


def is_trained(said: Message) -> bool:
    """Whether a message is in the loss: an assistant message that was not given to the model."""
    return said.role == "assistant" and said.trained is not False


def is_given(said: Message) -> bool:
    """Whether an assistant message was given to the model."""
    return said.role == "assistant" and said.trained is False


def in_words(row: PpoRecord) -> bool:
    """Whether a row's messages are the conversation itself, and not made from the steps of an agent."""
    return row.fidelity in ("exact", "transcript")


def unanswered(said: Sequence[Message]) -> str | None:
    """The reason why a service that requires an answer to every call refuses a conversation; None if it does not."""
    open_calls: set[str] = set()
    for each in said:
        if each.role == "tool":
            if each.tool_call_id not in open_calls:
                return "result_without_call"
            open_calls.discard(each.tool_call_id)
        elif open_calls:
            return "unanswered_call"
        else:
            open_calls = {call.id for call in each.tool_calls}
    return None


def tool_list(tools: str, said: Iterable[Message] = ()) -> list[dict[str, Any]]:
    """Tool definitions in OpenAI's shape, from any definitions of the producer, including tools that are called without
    being offered.

    A loader refuses a call to an undefined tool; a tool without a description takes any arguments.
    """
    offered = parse(tools) if tools else []
    defined = [found for entry in (offered if isinstance(offered, list) else []) if (found := _tool(entry)) is not None]
    known = {entry["function"]["name"] for entry in defined}
    for each in said:
        for call in each.tool_calls:
            if call.function.name not in known:
                known.add(call.function.name)
                defined.append(_function(call.function.name))
    return defined


def tool_text(tools: str, said: Iterable[Message] = ()) -> str:
    """The same as JSON text: one column type, whatever the tools look like."""
    return compact(tool_list(tools, said))


def _tool(entry: Any) -> dict[str, Any] | None:
    if isinstance(entry, str):
        return _function(entry) if entry else None
    if not isinstance(entry, dict):
        return None
    inner = entry.get("function")
    described = inner if isinstance(inner, dict) else entry
    name = described.get("name")
    if not isinstance(name, str) or not name:
        return None
    parameters = next(
        (
            described[key]
            for key in ("parameters", "input_schema", "inputSchema")
            if isinstance(described.get(key), dict)
        ),
        None,
    )
    more = {key: described[key] for key in ("description", "strict") if described.get(key) is not None}
    return _function(name, parameters, **more)


def _function(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, **more, "parameters": parameters or {"type": "object", "properties": {}}},
    }


def arguments(text: str) -> Any:
    """The value of a call's arguments; the text itself when it is not JSON."""
    try:
        return parse(text)
    except ValueError:
        return text
