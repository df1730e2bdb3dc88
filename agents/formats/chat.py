"""Chat messages and tools as trainers write them: OpenAI's shape, arguments and tool lists as JSON text."""

from collections.abc import Iterable
from typing import Any

from schemas.jsontext import compact, parse
from schemas.training import Message


def message(said: Message, *, names: bool = True) -> dict[str, Any]:
    """A message without the fields that do not apply to it. `content` stays even when it is null: loaders look for it."""
    shown: dict[str, Any] = {"role": said.role, "content": said.content}
    if said.tool_calls:
        shown["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type,
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in said.tool_calls
        ]
    if said.tool_call_id is not None:
        shown["tool_call_id"] = said.tool_call_id
    if names and said.name is not None:
        shown["name"] = said.name
    return shown


def messages(said: Iterable[Message], *, names: bool = True) -> list[dict[str, Any]]:
    """Messages, in order."""
    return [message(each, names=names) for each in said]


def tool_list(tools: str, said: Iterable[Message] = ()) -> list[dict[str, Any]]:
    """Tool definitions in OpenAI's shape, from whatever the producer offered, with those that are called without an offer.

    A loader refuses a call to a tool that is not defined; what nobody described takes any arguments.
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
