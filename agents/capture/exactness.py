"""Calls of which a row of messages would say something else than the model saw or said.

Each gets a reference of type `other` where the difference is: the call stays on the log, and no row is made of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agents.importers.traces.content import refer
from agents.importers.traces.fields import array_in, object_in, text_in
from agents.importers.traces.spoken import Spoken
from schemas.jsontext import compact

_ORDER = ("reasoning", "text", "call")
"""Messages of rows hold these one after the other."""

_KINDS = {"thinking": "reasoning", "text": "text", "tool_use": "call"}
"""By type of an Anthropic block."""


def in_block_order(spoken: Sequence[Spoken], message: Mapping[str, Any]) -> list[Spoken]:
    """Return what an Anthropic message says; an assistant's whose blocks stand in another order than a row's is marked."""
    if message.get("role") != "assistant":
        return list(spoken)
    blocks = [each for each in array_in(message, "content") if isinstance(each, dict) and each.get("type") in _KINDS]
    kinds = [_KINDS[each["type"]] for each in blocks if each["type"] == "tool_use" or text_in(each, each["type"])]
    return [_marked(each, _other_order(kinds)) for each in spoken]


def in_item_order(whole: Spoken, items: Sequence[Spoken]) -> Spoken:
    """Return the items of one response as one message, marked where they stand in another order than a row's."""
    kinds = [kind for each in items for kind in _kinds(each)]
    return _marked(whole, _other_order(kinds))


def unseen(
    protocol: str, fields: Mapping[str, Any], messages: Sequence[Spoken], response: Mapping[str, Any]
) -> Spoken | None:
    """Return a message that stands for a difference between the request and what the model saw; None where there is none."""
    edits = array_in(object_in(response, "context_management"), "applied_edits")
    if protocol == "anthropic-messages" and edits:
        return _reference({"edited": edits})
    if protocol == "openai-responses" and fields.get("truncation") == "auto":
        return _reference({"truncation": "auto"})
    goes_on = protocol == "anthropic-messages" or fields.get("continue_final_message") is True
    if goes_on and messages and messages[-1].role == "assistant":
        return _reference({"continued": True})  # the response is the rest of a message, not a message
    return None


def ambiguous() -> Spoken:
    """A message that stands for a request of which readers differ in what it says: an object of it has a key twice."""
    return _reference({"repeated_keys": True})


def _kinds(spoken: Spoken) -> list[str]:
    says = (spoken.reasoning, spoken.text, spoken.calls)
    return [kind for kind, said in zip(_ORDER, says, strict=True) if said]


def _other_order(kinds: Sequence[str]) -> list[str]:
    places = [_ORDER.index(kind) for kind in kinds]
    return [] if places == sorted(places) else list(kinds)


def _marked(spoken: Spoken, order: list[str]) -> Spoken:
    if not order:
        return spoken
    content = spoken.content
    parts = ({"type": "text", "text": content},) if isinstance(content, str) else content or ()
    return spoken._replace(content=(*parts, refer("other", "application/json", compact(order).encode())))


def _reference(value: Any) -> Spoken:
    return Spoken("user", (refer("other", "application/json", compact(value).encode()),))
