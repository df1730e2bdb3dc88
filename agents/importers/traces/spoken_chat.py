"""Read the chat messages of providers and conventions for the tracker.

One reader handles the messages of OpenAI, Anthropic (tool results inside a user message) and OpenTelemetry (`parts`).
An unreadable message is kept as a reference. A call with such a message is not exported as a row, and nothing is
guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.traces.chat import read_call
from agents.importers.traces.content import refer, reference
from agents.importers.traces.fields import array_in, as_text, object_in, rest_of, text_in
from agents.importers.traces.spoken import Part, Spoken, plain_content
from agents.importers.traces.transcript_writer import Called
from schemas.jsontext import compact, kind_of

ROLES = {
    "system": "system", "developer": "developer", "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant",
    "model": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip

_READ = (
    "role", "content", "parts", "tool_calls", "function_call", "tool_call_id", "name", "reasoning_content", "reasoning", "thinking",
    "refusal", "is_error", "finish_reason",
)  # fmt: skip
_TEXT = frozenset({"text", "input_text", "output_text", "refusal"})
_REASONING = frozenset({"thinking", "reasoning", "text_reasoning"})
_CALLS = frozenset({"tool_use", "tool_call", "function_call", "toolCall"})
_RESULTS = frozenset({"tool_result", "tool_call_response", "function_call_output"})


class Unread:
    """Unreadable messages, with place and reason."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, Any]] = []


def read_messages(values: Any, where: str, unread: Unread) -> list[Spoken]:
    """Return messages. An unreadable one becomes a reference in its place."""
    found: list[Spoken] = []
    for number, value in enumerate(values if isinstance(values, list) else [values]):
        try:
            found += spoken_of(value)
        except LineError as error:
            field = f"{where}[{number}].{error.field}".rstrip(".")
            unread.found.append((field, error.reason, value))
            found.append(Spoken("user", (refer("other", "application/json", compact(value).encode()),)))
    return found


def spoken_of(message: Any) -> list[Spoken]:
    """Return the messages in one chat message: a user message may contain tool results. Raises LineError."""
    if not isinstance(message, dict):
        raise LineError("", f"expected a message, found {kind_of(message)}")
    given = message.get("role")
    role = ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        raise LineError("role", "missing" if given is None else f"unknown: {given!r}")
    reading = _Parts()
    reading.take(message.get("content", message.get("parts")))
    source = rest_of(message, *_READ)
    if role == "assistant":
        return [_assistant(message, reading, source)]
    if role == "tool":
        return _tool(message, reading, source)
    own = plain_content(reading.parts)
    name = text_in(message, "name")
    if name is not None:
        source = {**source, "name": name}
    is_left = own is not None or not reading.results
    return [*reading.results, *([Spoken(role, own, source=source or None)] if is_left else [])]


def _assistant(message: Mapping[str, Any], reading: "_Parts", source: dict[str, Any]) -> Spoken:
    calls = [read_call(each, f"tool_calls[{number}]") for number, each in enumerate(array_in(message, "tool_calls"))]
    old = object_in(message, "function_call")
    if old and not calls:
        calls.append(read_call(old, "function_call"))
    content = plain_content(reading.parts)
    refusal = text_in(message, "refusal")
    if not content and refusal is not None:
        content = refusal
    beside = text_in(message, "reasoning_content", "reasoning", "thinking")
    reasoning = "\n\n".join(each for each in reading.reasoning if each) or beside
    extra = {"signatures": reading.signatures} if reading.signatures else None
    return Spoken(
        "assistant", content or None, reasoning, tuple(calls or reading.calls), extra=extra, source=source or None
    )


def _tool(message: Mapping[str, Any], reading: "_Parts", source: dict[str, Any]) -> list[Spoken]:
    if reading.results:  # result parts, each with its own id
        return reading.results
    content = message.get("content")
    own = plain_content(reading.parts) if content is None or isinstance(content, str | list) else as_text(content)
    failed = message.get("is_error") is True or message.get("status") == "error"
    call_id, name = text_in(message, "tool_call_id"), text_in(message, "name")
    return [Spoken("tool", own or "", call_id=call_id, name=name, is_error=failed, source=source or None)]


class _Parts:
    """The parts of one content."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.reasoning: list[str] = []
        self.signatures: list[Any] = []
        self.calls: list[Called] = []
        self.results: list[Spoken] = []

    def take(self, content: Any) -> None:
        """Read a content: null, a text, or parts."""
        if content is None:
            return
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                self._text(part)
            elif isinstance(part, dict):
                self._part(part, part.get("type"))
            else:
                self.parts.append(reference(part))

    def _part(self, part: dict[str, Any], kind: Any) -> None:
        if kind in _TEXT or (kind is None and isinstance(part.get("text"), str)):
            self._text(text_in(part, "text", "refusal", "content") or "")
        elif kind in _REASONING:
            self.reasoning.append(_thought(part))
            signature = text_in(part, "signature", "thinkingSignature", "encrypted_content")
            if signature is not None:
                self.signatures.append(signature)
        elif kind == "redacted_thinking":
            self.signatures.append(part)
        elif kind in _CALLS:
            self.calls.append(read_call(part, "content"))
        elif kind in _RESULTS:
            self.results.append(_result(part))
        else:
            self.parts.append(reference(part))

    def _text(self, text: str) -> None:
        if text or not self.parts:
            self.parts = [each for each in self.parts if each != {"type": "text", "text": ""}]
            self.parts.append({"type": "text", "text": text})


def _thought(part: Mapping[str, Any]) -> str:
    found = text_in(part, "thinking", "reasoning", "text", "content")
    if found is not None:
        return found
    return "\n\n".join(
        text for each in array_in(part, "summary") if isinstance(each, dict) and (text := text_in(each, "text"))
    )


def _result(part: Mapping[str, Any]) -> Spoken:
    given = next(
        (part[name] for name in ("response", "result", "output", "content") if part.get(name) is not None), None
    )
    inner = _Parts()
    if isinstance(given, list) and all(isinstance(each, dict) and "type" in each for each in given):
        inner.take(given)
    elif given is not None:
        inner.take(as_text(given))
    return Spoken(
        "tool",
        plain_content(inner.parts) or "",
        call_id=text_in(part, "tool_use_id", "id", "call_id", "tool_call_id"),
        name=text_in(part, "name"),
        is_error=part.get("is_error") is True,
    )


def merged(spoken: Sequence[Spoken]) -> Spoken | None:
    """Merge messages into one response: the Responses API splits it into items.

    Returns None if there is no response.
    """
    said = [each for each in spoken if each.role == "assistant" and each.says_something]
    if len(said) < 2:
        return said[0] if said else None
    parts = [part for each in said for part in _parts_of(each)]
    extra = {name: value for each in said for name, value in (each.extra or {}).items()}
    source = {name: value for each in said for name, value in (each.source or {}).items()}
    return Spoken(
        "assistant",
        plain_content(parts),
        "\n\n".join(each.reasoning for each in said if each.reasoning) or None,
        tuple(call for each in said for call in each.calls),
        extra=extra or None,
        source=source or None,
    )


def _parts_of(spoken: Spoken) -> Iterable[Part]:
    if isinstance(spoken.content, str):
        return ({"type": "text", "text": spoken.content},) if spoken.content else ()
    return spoken.content or ()
