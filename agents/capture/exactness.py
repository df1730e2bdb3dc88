"""Find calls whose messages in a row would differ from what the model saw or said.

Each gets a reference of type `other` at the difference: the call stays on the log, and no row is made of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agents.capture.request_delta import Whole
from agents.importers.traces.content import refer
from agents.importers.traces.fields import array_in, object_in, text_in
from agents.importers.traces.spoken import Spoken
from schemas.jsontext import compact

_ORDER = ("reasoning", "text", "call")
"""The order of parts in the messages of rows."""

_KINDS = {"thinking": "reasoning", "text": "text", "tool_use": "call"}
"""By type of an Anthropic block."""


_ADDED = ("web_search_options", "search_parameters", "plugins", "transforms", "documents", "echo", "suffix")
"""Fields of chat completions and completions with which a server searches, adds to the request or cuts it, or repeats it in the answer:
of OpenAI, xAI, OpenRouter and vLLM."""

_SOURCES = ("citations", "search_results")
"""Fields of a response: what the provider found (Perplexity, xAI)."""

_BESIDE = ("annotations", "executed_tools", "images")
"""Fields of a message: sources, tools that the provider ran (Groq), and media that were made (OpenRouter)."""

_BEGUN = ("prefix", "partial")
"""Marks of a message as the beginning of the answer (Mistral, DeepSeek; Moonshot)."""


def in_block_order(spoken: Sequence[Spoken], message: Mapping[str, Any]) -> list[Spoken]:
    """Return the parts of an Anthropic message; an assistant message whose blocks are in a different order than in rows
    is marked.
    """
    if message.get("role") != "assistant":
        return list(spoken)
    blocks = [each for each in array_in(message, "content") if isinstance(each, dict) and each.get("type") in _KINDS]
    kinds = [_KINDS[each["type"]] for each in blocks if each["type"] == "tool_use" or text_in(each, each["type"])]
    return [_marked(each, _other_order(kinds)) for each in spoken]


def in_item_order(whole: Spoken, items: Sequence[Spoken]) -> Spoken:
    """Return the items of one response as one message, marked if their order differs from that of a row."""
    kinds = [kind for each in items for kind in _kinds(each)]
    return _marked(whole, _other_order(kinds))


def unseen(protocol: str, asked: Whole, messages: Sequence[Spoken], response: Mapping[str, Any]) -> Spoken | None:
    """Return a message that marks a difference between the request and what the model saw; None if there is none."""
    edits = array_in(object_in(response, "context_management"), "applied_edits")
    if protocol == "anthropic-messages" and edits:
        return _reference({"edited": edits})
    if protocol == "openai-responses" and asked.fields.get("truncation") == "auto":
        return _reference({"truncation": "auto"})
    if protocol in ("openai-chat", "openai-completions"):
        added = {name: asked.fields[name] for name in _ADDED if _is_given(asked.fields.get(name))} | _beside(response)
        if added:
            return _reference(added)
    if _goes_on(protocol, asked) and messages and messages[-1].role == "assistant":
        return _reference({"continued": True})  # the response is the rest of a message, not a message
    return None


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value not in ([], "")


def _goes_on(protocol: str, asked: Whole) -> bool:
    """Whether an assistant message at the end of a request is the beginning of the answer."""
    if protocol == "anthropic-messages" or asked.fields.get("continue_final_message") is True:
        return True
    last = asked.history[-1].item if asked.history else None
    return isinstance(last, dict) and any(last.get(name) is True for name in _BEGUN)


def _beside(response: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of a chat completion beside its text and calls: tools that the provider ran, and media."""
    found = {name: response[name] for name in _SOURCES if response.get(name)}
    for choice in array_in(response, "choices"):
        message = object_in(choice, "message") if isinstance(choice, dict) else {}
        found |= {name: message[name] for name in _BESIDE if message.get(name)}
    return found


def ambiguous() -> Spoken:
    """A message that marks an ambiguous request: an object in it has a key twice, and readers differ in which one they
    use.
    """
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
