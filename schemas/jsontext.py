"""Reading JSON that came from outside: strict, exact, and bounded in depth.

Strict: no NaN, no infinities, no lone surrogates, UTF-8 only. Exact: integers of any size stay integers. Bounded: what is
nested deeper than `MAX_DEPTH` is refused instead of exhausting somebody's stack later. `parse_unique` is for bytes that come
in; `parse` also reads facts that are on the log already, of whose repeated keys the last one counts.
"""

import json
from typing import Any, Final

from orjson import dumps, loads
from pydantic_core import SchemaValidator, core_schema

from schemas.repeated_keys import refuse_repeated_keys

MAX_DEPTH: Final = 100
"""Deeper nesting than this is an attack or a bug, never a tool's arguments."""

_HAS_LONG_DIGITS = SchemaValidator(core_schema.str_schema(pattern="(?:^|[^0-9.])[0-9]{19}")).isinstance_python
"""Only integers this long can leave the 64 bits that the fast parser keeps exact; digits behind a point are none. Rust's matcher
is thirty times as fast."""


def parse(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, with the position where there is one."""
    text = _decoded(text)
    return _exact(text, parse_short_numbers(text))


def parse_unique(text: str | bytes) -> Any:
    """As `parse`. Raises RepeatedKeyError, which is a ValueError, when an object has a key twice."""
    decoded = _decoded(text)
    value = parse_short_numbers(decoded)
    # A text that is written as orjson writes its value has lost no key and no digit; most lines are.
    if dumps(value) == (decoded.encode() if isinstance(text, str) else text):
        return value
    refuse_repeated_keys(decoded, value)
    return _exact(decoded, value)


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None


def _exact(text: str, value: Any) -> Any:
    """The value with long integers exact; orjson has vetted its text."""
    return json.loads(text) if _HAS_LONG_DIGITS(text) else value


def parse_short_numbers(text: str) -> Any:
    """The value of a JSON text; an integer beyond 64 bits becomes a float, so the caller has to look for those."""
    value = loads(text)
    if len(text) <= 2 * MAX_DEPTH or _is_flat(value) or text.count("[") + text.count("{") <= MAX_DEPTH:
        return value
    if depth(value) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return value


def _is_flat(value: Any) -> bool:
    """Whether a value is an object of texts and numbers, as most are: its depth need not be counted."""
    if not isinstance(value, dict):
        return False
    return all(not isinstance(inner, (dict, list)) for inner in value.values())


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object that a text holds. Raises ValueError when it holds something else."""
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
    """What a person calls the JSON type of a value."""
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
