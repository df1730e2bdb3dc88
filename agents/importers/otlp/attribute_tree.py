"""Turn attributes with dotted keys into nested values: `llm.input_messages.0.message.role` is a list of objects."""

from collections.abc import Mapping
from typing import Any

from schemas.jsontext import parse

MAX_PARTS = 20
"""Maximum number of levels from one key. The rest of a longer key stays one name."""


def nested(attributes: Mapping[str, Any], *prefixes: str) -> dict[str, Any]:
    """Return the attributes below these prefixes (each ends with a dot), nested by the parts of their keys."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefixes):
            continue
        node = tree
        *way, last = key.split(".", MAX_PARTS)
        for part in way:
            below = node.get(part)
            if not isinstance(below, dict):  # a key with both a value and members
                below = node[part] = {} if below is None else {"": below}
            node = below
        if isinstance(node.get(last), dict):
            node[last][""] = value
        else:
            node[last] = value
    return tree


def listed(node: Any) -> list[Any]:
    """Return the numbered members in numeric order."""
    if not isinstance(node, dict):
        return []
    numbered = sorted((int(name), name) for name in node if name.isdecimal() and len(name) < 10)
    return [node[name] for _, name in numbered]


def at(node: Any, *names: str) -> Any:
    """Return the value below these names, or None."""
    for name in names:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def parsed(value: Any) -> Any:
    """Parse a JSON text; None for invalid JSON. A value that is not a text is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError:
        return None


def parsed_list(value: Any) -> list[Any] | None:
    """Return a list that is given as JSON, as values, or as a list of JSON texts. Returns None for anything else."""
    found = parsed(value)
    if not isinstance(found, list):
        return None
    return [read if isinstance(each, str) and isinstance(read := parsed(each), dict) else each for each in found]
