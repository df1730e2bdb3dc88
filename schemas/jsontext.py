"""Reading JSON that came from outside: strict, exact, and bounded in depth.

Strict: no NaN, no infinities, no lone surrogates, UTF-8 only. Exact: integers of any size stay integers. Bounded: a
value that is nested deeper than `MAX_DEPTH` is refused instead of exhausting a reader's stack later. `parse_unique` is
for bytes that come in; `parse` also reads facts that are on the log already, of whose repeated keys the last one
counts.
"""

import json
import re
from typing import Any, Final

from orjson import dumps, loads

from schemas.repeated_keys import refuse_repeated_keys

MAX_DEPTH: Final = 100
"""Deeper nesting than this is an attack or a bug, never a tool's arguments."""

_CLASSES: Final = bytes(
    ord("0") if code in b"0123456789" else ord(":") if code in b":,[- \t\r\n" else ord("_") for code in range(256)
)
"""Maps digits to 0, and all that can stand before an integer to a colon."""

_LONG_INTEGER: Final = b":" + b"0" * 19
"""In a text that was mapped: only integers this long can leave the 64 bits that the fast parser keeps exact."""

_CONSTANT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|-?\b(?:NaN|Infinity)\b', re.DOTALL)
"""A text, or a constant outside of texts. A text that never ends matches to the end, so that hostile ones cost linear time."""


def parse(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, with the position if there is one."""
    decoded = _decoded(text)
    value = parse_short_numbers(decoded)
    return _exact(decoded, value, decoded.encode() if isinstance(text, str) else text)


def parse_unique(text: str | bytes) -> Any:
    """As `parse`. Raises RepeatedKeyError, which is a ValueError, when an object has a key twice."""
    decoded = _decoded(text)
    value = parse_short_numbers(decoded)
    raw = decoded.encode() if isinstance(text, str) else text
    # A text that is written as orjson writes its value has lost no key and no digit; most lines are.
    written = dumps(value)
    if written == raw:
        return value
    # A member that was lost had a colon. Colons of texts are in both, unless they are written as escapes.
    if raw.count(b":") != written.count(b":") or (b"\\u003" in raw and (b"\\u003a" in raw or b"\\u003A" in raw)):
        refuse_repeated_keys(decoded, value)
    return _exact(decoded, value, raw)


def without_constants(text: bytes) -> bytes:
    """The text with null for NaN and the infinities, which Python writes into JSON: the producer means that there is no value."""
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    return _CONSTANT.sub(lambda found: found[0] if found[0].startswith(b'"') else b"null", text)


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None


def _exact(text: str, value: Any, raw: bytes) -> Any:
    """The value with long integers exact; orjson has vetted its text."""
    if isinstance(value, (dict, list)):
        return json.loads(text) if _LONG_INTEGER in raw.translate(_CLASSES) else value
    return json.loads(text) if isinstance(value, float) else value


def parse_short_numbers(text: str) -> Any:
    """The value of a JSON text; an integer beyond 64 bits becomes a float, so the caller has to look for those."""
    value = loads(text)
    if not isinstance(value, (dict, list)) or len(text) <= 2 * MAX_DEPTH:
        return value
    # Most values are flat, and most texts have not even so many brackets: both are quicker to see than the nesting.
    if _is_flat(value):
        return value
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return value


def _is_flat(value: Any) -> bool:
    """Whether no array or object is inside of an array or object."""
    return all(not isinstance(inner, (dict, list)) for inner in (value.values() if isinstance(value, dict) else value))


def _is_deeper(value: Any, most: int) -> bool:
    """Whether arrays and objects are nested deeper than that in an array or object."""
    if most == 0:
        return True
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list)) and _is_deeper(inner, most - 1):
            return True
    return False


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a text. Raises ValueError if it is not an object."""
    return as_object(parse(text))


def as_object(value: Any) -> dict[str, Any]:
    """The same value, when it is a JSON object. Raises ValueError when it is something else."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {kind_of(value)}")  # noqa: TRY004 - callers handle one kind of bad text
    return value


def as_array(value: Any) -> list[Any]:
    """The same value, when it is a JSON array. Raises ValueError when it is something else."""
    if not isinstance(value, list):
        raise ValueError(f"expected a JSON array, found {kind_of(value)}")  # noqa: TRY004 - callers handle one kind of bad text
    return value


def compact(value: Any) -> str:
    """JSON text without spaces, keys in the order they have."""
    try:
        return dumps(value).decode()
    except TypeError:  # an integer beyond 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def depth(value: Any) -> int:
    """How deep arrays and objects are nested in a value."""
    deepest, level = 0, [value]
    while level:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
                inner.append(None)
            elif isinstance(item, list):
                inner.extend(item)
                inner.append(None)
        deepest += bool(inner)
        level = inner
    return deepest


def kind_of(value: Any) -> str:
    """The name of the JSON type of a value, for people."""
    if value is None:
        return "null"
    return {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }[type(value)]
