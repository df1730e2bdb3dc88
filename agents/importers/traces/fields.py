"""Typed access to values of other programs. A wrong type raises a LineError that names the field."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agents.importers.line_error import LineError
from schemas.jsontext import compact, kind_of


def an_object(value: Any, field: str) -> dict[str, Any]:
    """Return an object. Raises LineError for another type."""
    if not isinstance(value, dict):
        raise LineError(field, f"expected an object, found {kind_of(value)}")
    return value


def an_array(value: Any, field: str) -> list[Any]:
    """Return an array. Raises LineError for another type."""
    if not isinstance(value, list):
        raise LineError(field, f"expected an array, found {kind_of(value)}")
    return value


def object_in(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the object below these names, or an empty one."""
    found: Any = value
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def array_in(value: Mapping[str, Any], name: str) -> list[Any]:
    """Return the array of that name, or an empty one."""
    found = value.get(name)
    return found if isinstance(found, list) else []


def text_in(value: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of these members that is a non-empty text."""
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found
    return None


def whole_in(value: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of these members that is a whole number from 0 on."""
    for name in names:
        found = value.get(name)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
    return None


def number_in(value: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of these members that is a number."""
    for name in names:
        found = value.get(name)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return found
    return None


def rest_of(value: Mapping[str, Any], *read: str) -> dict[str, Any]:
    """Return the unread members that are not empty: they go to `source`."""
    return {name: found for name, found in value.items() if name not in read and found not in (None, "", [], {})}


def as_text(value: Any) -> str:
    """Return a text unchanged, and any other JSON value as compact JSON."""
    return value if isinstance(value, str) else compact(value)


def look(value: Any, path: str) -> Any:
    """Return the value at a dotted path (`state.task_id`, `messages.0.role`), or None."""
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def nanos(value: Any) -> int | None:
    """Convert a time to nanoseconds: ISO 8601 (UTC if it has no zone), or a number of s, ms, us or ns since 1970."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value)
    if not isinstance(value, str) or not value:
        return None
    try:
        if value.isdecimal():
            return _from_number(int(value))
        read = datetime.fromisoformat(value)
        read = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
        since = read - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def millis(value: Any) -> int | None:
    """Convert a time to milliseconds."""
    if value is None:
        return None
    found = nanos(value)
    return None if found is None else found // 1_000_000


def _from_number(value: float) -> int | None:
    if not 0 < value < 1e19:  # also excludes NaN
        return None
    for limit, factor in ((1e11, 1_000_000_000), (1e14, 1_000_000), (1e17, 1000)):
        if value < limit:
            return int(value * factor)
    return int(value)
