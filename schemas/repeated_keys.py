"""Repeated keys in JSON texts: readers differ in which one counts, so a text with one is ambiguous.

Exact and cheap: an object that repeats a key loses a member when it is parsed, so the text has more members than the value
has keys. Members are colons outside of strings, and those are counted without parsing. Only a text with a repeated key
is parsed once more, to find its position.
"""

import json
from typing import Any, Final

CHUNK: Final = 64 * 1024
"""Characters that are split at once: bounds the memory of counting."""

SHOWN: Final = 80
"""Characters of a key that a message shows."""


class RepeatedKeyError(ValueError):
    """An object in a JSON text has the same key twice."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        """The key with the objects and arrays around it, as in `event.data.answer`."""
        self.reason = reason


def refuse_repeated_keys(text: str, value: Any) -> None:
    """Raise RepeatedKeyError if an object in a text has a key twice; `value` is the parsed text."""
    keys = _keys(value)
    if text.count(":") != keys and not _is_close(text, keys) and _members(text) != keys:
        raise _located(text)


def _is_close(text: str, keys: int) -> bool:
    """Whether a text shows by its `":` alone, without white space, that it has no more members than keys.

    Every member has one, and strings may have more; so there are not more members than that.
    """
    return text.encode().translate(None, b" \t\r\n").count(b'":') == keys


def _keys(value: Any) -> int:
    """Keys of all objects in a value."""
    count = 0
    if isinstance(value, dict):
        count = len(value)
        for inner in value.values():
            if isinstance(inner, (dict, list)):
                count += _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, (dict, list)):
                count += _keys(inner)
    return count


def _members(text: str) -> int:
    """Members of all objects in a JSON text: its colons outside of strings."""
    if "\\" in text:  # only strings have backslashes; without the escaped ones, every quote begins or ends a string
        text = text.replace("\\\\", "").replace('\\"', "")
    count, inside = 0, 0
    for start in range(0, len(text), CHUNK):
        parts = text[start : start + CHUNK].split('"')
        count += "".join(parts[inside::2]).count(":")
        inside = (inside + len(parts) - 1) % 2
    return count


def _located(text: str) -> RepeatedKeyError:
    """The error for the first repeated key, outer objects first."""
    try:
        # An object becomes the tuple of its members; an array stays a list.
        level = [("", json.loads(text, object_pairs_hook=tuple, parse_int=str, parse_float=str))]
    except RecursionError:  # what is nested so deep is lost to the key that comes later
        return RepeatedKeyError("", "an object has a key twice; send it once")
    while level:
        inner: list[tuple[str, Any]] = []
        for path, value in level:
            if isinstance(value, tuple):
                seen: set[str] = set()
                for key, content in value:
                    below = f"{path}.{_shown(key)}" if path else _shown(key)
                    if key in seen:
                        return RepeatedKeyError(below, "the key stands twice in this object; send it once")
                    seen.add(key)
                    inner.append((below, content))
            elif isinstance(value, list):
                inner += [(f"{path}[{index}]", content) for index, content in enumerate(value)]
        level = inner
    raise AssertionError("a text with more members than keys has a repeated key")


def _shown(key: str) -> str:
    """A key in a path."""
    short = key if len(key) <= SHOWN else key[:SHOWN] + "..."
    return short if short.replace("_", "").replace("-", "").isalnum() else json.dumps(short)
