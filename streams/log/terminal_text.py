"""Foreign text, fit for a terminal: redacted, on one line, without control sequences.

Text of agents, verifiers and producers is printed only through here.
"""

import re
from datetime import UTC, datetime
from typing import Any

from agents.redaction.redaction import redact, redact_json
from schemas.base import Record
from schemas.jsontext import compact, parse

LINE = 120
"""The default number of characters of a line."""

WHOLE = 1000
"""Maximum length of values that are not truncated at usual lengths: ids, flags, reasons, messages."""

SCREENFUL = 20
"""Lines of one section; further ones are counted."""

_SPACES = re.compile(r"\s+")
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
"""Control characters, those that change the direction of writing, invisible ones, and surrogates."""


def line(text: str, limit: int = LINE) -> str:
    """The text on one line. It is redacted before it is cut: half a key is still a key."""
    return cut(visible(_SPACES.sub(" ", redact(text).text).strip()), limit)


def visible(text: str) -> str:
    """The text with characters that a terminal would obey, or that are invisible, spelled out."""
    return _INVISIBLE.sub(_spelled, text)


def cut(text: str, limit: int) -> str:
    """The beginning of a text, with a sign that it was truncated; whole words, unless one is longer than half of it."""
    if len(text) <= limit:
        return text
    words = text[:limit].rpartition(" ")[0]
    return (words if len(words) >= limit // 2 else text[: limit - 1]) + "…"


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def moment(milliseconds: int | None) -> str:
    """A time of the log, in UTC; a dash if there is none."""
    if milliseconds is None:
        return "-"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash if it is unknown."""
    return "-" if value is None else f"{value:.{digits}f}"


def several(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(items: list[str], limit: int = SCREENFUL) -> str:
    """Items with commas; the number of further ones if there are too many."""
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def json_of(record: Record) -> dict[str, Any]:
    """A record as a JSON object, redacted; JSON that travels as text is redacted field by field."""
    cleaned: dict[str, Any] = clean(record.plain())
    return cleaned


def clean(value: Any) -> Any:
    """A JSON value, redacted."""
    return redact_json(_inner(value)).value


def _inner(value: Any) -> Any:
    """The value with lists for tuples, and with the secrets of JSON that is kept as text removed."""
    if isinstance(value, dict):
        return {key: _inner(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inner(item) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            found = redact_json(parse(value))
        except ValueError:
            return value
        return compact(found.value) if found.counts else value
    return value
