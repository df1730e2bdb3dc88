"""The content of chat messages: text, and references to media.

Providers write a content as text or as parts. Text is kept whole. Media, and texts over the limit of an event, become a
reference {type, media_type, bytes, digest}; a branch that holds one cannot become a row of text.
"""

import base64
import binascii
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from agents.importers.traces.fields import object_in, text_in
from agents.summarize.output import byte_length
from schemas.jsontext import compact, depth

MAX_TEXT = 900 * 1024
"""Maximum UTF-8 bytes of a text in an event. The limit of the event itself is 1 MiB."""

MAX_NESTED = 80
"""Maximum nesting of a value. The line around it adds a few levels, and the limit of a line is 100."""

MAX_SOURCE = 64 * 1024
"""Maximum bytes of an event's fields without another place: raw output, diffs, complete files of which the model got a
part.
"""

_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_REASONING_TYPES = frozenset({"thinking", "reasoning", "text_reasoning"})
_CALL_TYPES = frozenset({"tool_use", "tool_call", "function_call", "toolCall", "tool_result", "server_tool_use"})


_DIGEST = 64
"""Length of a SHA-256 in hex."""


class Content(NamedTuple):
    """A parsed content."""

    text: str | None
    """None if there is no text at all."""
    reasoning: tuple[tuple[str, str | None], ...] = ()
    """Reasoning parts, each with its signature."""
    media: tuple[dict[str, Any], ...] = ()
    """References to parts that are not text."""


def read_content(value: Any) -> Content:
    """Read a content: text, null, one part, or an array of parts.

    The caller handles parts that are calls or results.
    """
    if value is None or isinstance(value, str):
        return Content(value)
    texts: list[str] = []
    reasoning: list[tuple[str, str | None]] = []
    media: list[dict[str, Any]] = []
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = text_in(part, "type") if isinstance(part, dict) else None
        if kind == "redacted_thinking":
            reasoning.append(("", text_in(part, "data")))
        elif kind in _REASONING_TYPES:
            reasoning.append((_reasoning(part), text_in(part, "signature", "thinkingSignature", "encrypted_content")))
        elif kind == "text" and _is_reference(part):
            media.append(dict(part))  # a reference to a text that was too long for an event
        elif kind in _TEXT_TYPES or (kind is None and isinstance(part, dict) and isinstance(part.get("text"), str)):
            texts.append(text_in(part, "text", "refusal", "content") or "")
        elif kind not in _CALL_TYPES and not str(kind).endswith("_tool_result"):
            media.append(reference(part))
    return Content("".join(texts) if texts else None, tuple(reasoning), tuple(media))


def _reasoning(part: dict[str, Any]) -> str:
    found = text_in(part, "thinking", "reasoning", "text", "content")
    if found is not None:
        return found
    lists = [each for name in ("content", "summary") if isinstance(each := part.get(name), list) and each]
    parts = lists[0] if lists else []
    return "\n\n".join(text_in(each, "text") or "" for each in parts if isinstance(each, dict))


def reference(part: Any) -> dict[str, Any]:
    """Return the reference to a part that is not text: its kind, media type, length and SHA-256."""
    if not isinstance(part, dict):
        return refer("other", None, compact(part).encode())
    if _is_reference(part):
        return dict(part)
    kind = str(part.get("type") or "other")
    known = next((name for name in ("image", "audio", "file") if name in kind), None)
    known = known or ("file" if "document" in kind or "resource" in kind or "blob" in kind else "other")
    source = object_in(part, "source")
    media_type = text_in(source, "media_type", "mediaType") or text_in(part, "media_type", "mimeType", "mime_type")
    url = object_in(part, "image_url").get("url") or part.get("image_url") or part.get("url") or part.get("image")
    data = source.get("data") or part.get("data") or object_in(part, "input_audio").get("data")
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        media_type = media_type or head[5:].split(";")[0]
    if isinstance(data, str):
        return refer(known, media_type, _decoded(data))
    return refer(known, media_type, compact(part).encode())


def _is_reference(part: Mapping[str, Any]) -> bool:
    """Return whether a part is such a reference already, as in a file that was exported from a log."""
    return (
        part.keys() <= {"type", "media_type", "bytes", "digest"}
        and isinstance(part.get("digest"), str)
        and len(part["digest"]) == _DIGEST
        and isinstance(part.get("bytes", 0), int)
        and part.get("type") in ("image", "audio", "file", "other", "text")
        and isinstance(part.get("media_type", ""), str)
    )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def refer(kind: str, media_type: str | None, raw: bytes) -> dict[str, Any]:
    """Return the reference to some bytes."""
    found = {"type": kind, "media_type": media_type, "bytes": len(raw), "digest": sha256(raw).hexdigest()}
    return {name: value for name, value in found.items() if value is not None}


def fitting_source(source: Mapping[str, Any], limit: int = MAX_SOURCE) -> dict[str, Any]:
    """Return fields without another place. If they exceed the limit, references replace the long ones."""
    if _fits(source, limit):
        return dict(source)
    kept = {name: value if _fits(value, limit // 16) else referred(value) for name, value in source.items()}
    return kept if _fits(kept, limit) else {"left_out": referred(dict(source))}


def _fits(value: Any, limit: int) -> bool:
    if isinstance(value, str):
        return byte_length(value) <= limit
    if not isinstance(value, (dict, list)):
        return True
    return depth(value) <= MAX_NESTED and byte_length(compact(value)) <= limit


def referred(value: Any) -> dict[str, Any]:
    """Return the reference to a text or JSON value that is not stored."""
    text = value if isinstance(value, str) else compact(value)
    return refer("text", "text/plain" if isinstance(value, str) else "application/json", text.encode())


def too_large(value: Any) -> dict[str, Any] | None:
    """Return the reference to a text or JSON value that is too long or too deeply nested for an event.

    Returns None for others.
    """
    if value is None or (isinstance(value, str) and len(value) <= MAX_TEXT // 4):
        return None
    return None if _fits(value, MAX_TEXT) else referred(value)
