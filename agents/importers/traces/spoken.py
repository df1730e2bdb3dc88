"""A message of a request or a response, and the key that identifies two copies of one message.

Formats that repeat the history with every call write the same message in several ways: as text or as one text part,
with arguments as text or as an object, with or without its reasoning. The key ignores these differences. The event
keeps the first form of the message.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from agents.evidence.canonical import CanonicalError, canonical_bytes
from agents.importers.traces.content import refer, too_large
from agents.importers.traces.fields import as_text
from agents.importers.traces.transcript_writer import Called
from agents.summarize.output import byte_length
from schemas.conversation import MAX_MESSAGE_BYTES
from schemas.jsontext import compact, parse

Part = dict[str, Any]
"""A content part in the form of `message` events."""

MAX_NAME = 1024
"""Maximum characters of a tool's name or a call's id."""


class Spoken(NamedTuple):
    """A message."""

    role: str
    """system, developer, user, assistant or tool."""
    content: str | tuple[Part, ...] | None = None
    """Text, or parts if it is more than one text."""
    reasoning: str | None = None
    calls: tuple[Called, ...] = ()
    """The calls of an assistant message."""
    call_id: str | None = None
    """The call that a tool message answers, if the producer provides it."""
    name: str | None = None
    is_error: bool = False
    extra: Mapping[str, Any] | None = None
    """Data of the provider: signatures of thinking blocks."""
    source: Mapping[str, Any] | None = None
    """Fields that have no other place."""

    @property
    def text(self) -> str:
        """Return all text of the content."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.get("text") or "" for part in self.content if part["type"] == "text")

    @property
    def says_something(self) -> bool:
        """Return whether there is any content, reasoning or call."""
        return bool(self.content or self.reasoning or self.calls)


def plain_content(parts: Iterable[Part]) -> str | tuple[Part, ...] | None:
    """Convert parts to a content: no parts become null, a single text part becomes text."""
    kept = tuple(parts)
    if not kept:
        return None
    if len(kept) == 1 and kept[0]["type"] == "text":
        return str(kept[0]["text"])
    return kept


def key_of(spoken: Spoken, *, reasoning: bool = False) -> bytes:
    """Return the key of a message. It excludes names and error marks, because requests often omit them.

    With `reasoning`, messages are equal only if their reasoning is equal: otherwise the model received different input.
    """
    content = spoken.content
    media = [part for part in content if part["type"] != "text"] if isinstance(content, tuple) else []
    calls = [[call.id, call.name, plain_arguments(call.arguments)] for call in spoken.calls]
    seen = [
        spoken.role,
        spoken.text,
        media,
        calls,
        spoken.call_id,
        *([spoken.reasoning] if reasoning and spoken.reasoning else []),
    ]
    return sha256(compact(seen).encode()).digest()[:16]


def plain_arguments(value: Any) -> str:
    """Return arguments as canonical JSON, or as text if they are not JSON."""
    if isinstance(value, str):
        try:
            value = parse(value)
        except ValueError:
            return as_text(value)
    try:
        return canonical_bytes({} if value is None else value, big_integers="exact").decode()
    except CanonicalError:
        return as_text(value)


def arguments_text(value: Any) -> str:
    """Return arguments for a `message` event: the JSON text that the model wrote."""
    if value is None:
        return "{}"
    return value if isinstance(value, str) else compact(value)


def message_data(
    spoken: Spoken, message_id: str, call_ids: Iterable[str], call_id: str | None, agent: str | None
) -> dict[str, Any]:
    """Return the data of a message's event; `call_ids` are the ids of its calls, `call_id` that of the call it
    answers.
    """
    content = list(spoken.content) if isinstance(spoken.content, tuple) else spoken.content
    calls = [
        {"id": known, "name": short(call.name) or "unknown", "arguments": arguments_text(call.arguments)}
        for known, call in zip(call_ids, spoken.calls, strict=True)
    ]
    data = {
        "id": message_id,
        "role": spoken.role,
        "agent": agent,
        "content": content,
        "reasoning": spoken.reasoning or None,
        "tool_calls": calls or None,
        "tool_call_id": call_id,
        "name": None if spoken.name is None else short(spoken.name),
        "is_error": spoken.is_error or None,
        "extra": None if not spoken.extra else dict(spoken.extra),
        "source": None if not spoken.source else dict(spoken.source),
    }
    return fitted({name: value for name, value in data.items() if value is not None})


def fitted(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a message with references in place of values that are too long.

    Such a message is not exported to text rows.
    """
    text = compact(data)
    if len(text) <= MAX_MESSAGE_BYTES // 4 or byte_length(text) <= MAX_MESSAGE_BYTES:
        return data
    left = {name: value for name, value in data.items() if name not in ("extra", "source", "reasoning")}
    beside = {name: data[name] for name in ("extra", "source") if name in data}
    if beside:
        left["source"] = {"left_out": refer("other", "application/json", compact(beside).encode())}
    content = data.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    left["content"] = [_outside(part) for part in parts]
    if "reasoning" in data:
        left["content"].append(_refer_text(data["reasoning"]))
    kept = []
    for call in data.get("tool_calls", ()):
        if too_large(call["arguments"]) is not None:
            left["content"].append(_refer_text(call["arguments"]))
            call = call | {"arguments": "{}"}  # noqa: PLW2901 - the reference stands in the content
        kept.append(call)
    if kept:
        left["tool_calls"] = kept
    if byte_length(compact(left)) > MAX_MESSAGE_BYTES:  # too many small parts
        names = [{"id": call["id"], "name": call["name"], "arguments": "{}"} for call in kept][:1000]
        left |= {"content": [_refer_text(text)]} | ({"tool_calls": names} if names else {})
    return left


def _outside(part: Part) -> Part:
    text = part.get("text")
    return part if not isinstance(text, str) or too_large(text) is None else _refer_text(text)


def _refer_text(text: str) -> Part:
    return refer("other", "text/plain", text.encode())


def short(name: str) -> str:
    """Return a name or an id, shortened to fit its field."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 33]}-{sha256(name.encode()).hexdigest()[:32]}"
