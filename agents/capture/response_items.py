"""Items of the Responses API as messages: all output of one response is one message, as in other protocols."""

from collections.abc import Iterable, Iterator
from typing import Any

from agents.capture.exactness import in_item_order
from agents.importers.line_error import LineError
from agents.importers.traces.content import refer
from agents.importers.traces.fields import as_text, text_in
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.spoken_chat import merged, spoken_of
from agents.importers.traces.transcript_writer import Called
from schemas.jsontext import compact, kind_of

_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Kinds of calls that the client answers, and the field of their arguments."""

_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})


def read_item(item: Any) -> list[Spoken]:
    """Return the messages of an item. Raises LineError."""
    if not isinstance(item, dict):
        raise LineError("", f"expected an item, found {kind_of(item)}")
    kind = item.get("type")
    if kind in _CALLS:
        arguments = item.get(_CALLS[kind])
        if kind == "custom_tool_call":  # a tool with text input: it is not malformed JSON
            arguments = {"input": arguments}
        name = text_in(item, "name") or kind.removesuffix("_call")
        return [Spoken("assistant", calls=(Called(name, arguments, text_in(item, "call_id", "id")),))]
    if kind in _OUTPUTS:
        output = item.get("output")
        content = output if isinstance(output, str | list) else as_text(output)
        return spoken_of({"role": "tool", "tool_call_id": text_in(item, "call_id", "id"), "content": content})
    if kind == "reasoning":
        return spoken_of({"role": "assistant", "content": [item]})
    if kind in (None, "message"):
        found = spoken_of(
            {name: value for name, value in item.items() if name not in ("id", "type", "status", "phase")}
        )
        return [each for each in found if each.role != "assistant" or each.says_something]
    # Tools that the provider runs, and references to items that it stores: a row of text cannot represent them.
    return [Spoken("assistant", (refer("other", "application/json", compact(item).encode()),))]


def joined(messages: Iterable[Spoken]) -> Iterator[Spoken]:
    """Messages with the items of one response as one message."""
    said: list[Spoken] = []
    for each in messages:
        if each.role == "assistant":
            said.append(each)
            continue
        yield from _one(said)
        said = []
        yield each
    yield from _one(said)


def _one(said: list[Spoken]) -> Iterator[Spoken]:
    whole = merged(said) or (said[0] if said else None)
    if whole is not None:
        yield in_item_order(whole, said)
