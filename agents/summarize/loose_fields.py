"""JSON fields from other systems: read by any of their usual names; None for a value of another type."""

from typing import Any


def first(data: dict[str, Any], *names: str, default: Any = None) -> Any:
    """The first of these keys that is there and not null."""
    for name in names:
        value = data.get(name)
        if value is not None:
            return value
    return default


def text_or_none(value: Any) -> str | None:
    """A string; numbers as text; None for anything else, and for an empty string."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def whole_or_none(value: Any) -> int | None:
    """An integer that fits a record; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
        return value
    return None
