"""Attributes with dotted keys as nested values: `llm.input_messages.0.message.role` is a list of objects."""

from collections.abc import Mapping
from typing import Any

from schemas.jsontext import parse

MAX_PARTS = 20
"""Parts of a key that become levels; the rest of a longer key stays one name."""


def nested(attributes: Mapping[str, Any], *prefixes: str) -> dict[str, Any]:
    """The attributes below these prefixes (each ends with a dot), nested by the parts of their keys."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefixes):
            continue
        node = tree
        *way, last = key.split(".", MAX_PARTS)
        for part in way:
            below = node.get(part)
            if not isinstance(below, dict):  # a value that has members as well
                below = node[part] = {} if below is None else {"": below}
            node = below
        if isinstance(node.get(last), dict):
            node[last][""] = value
        else:
            node[last] = value
    return tree


def listed(node: Any) -> list[Any]:
    """Members that are numbered, in the order of their numbers."""
    if not isinstance(node, dict):
        return []
    numbered = sorted((int(name), name) for name in node if name.isdecimal() and len(name) < 10)
    return [node[name] for _, name in numbered]


def at(node: Any, *names: str) -> Any:
    """The value below these names; None where there is none."""
    for name in names:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def parsed(value: Any) -> Any:
    """The value of a JSON text; a value that is no text as it is, None for a text that is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError:
        return None


def parsed_list(value: Any) -> list[Any] | None:
    """A list that is written as JSON, as values, or as a list of JSON texts; None for something else."""
    found = parsed(value)
    if not isinstance(found, list):
        return None
    return [read if isinstance(each, str) and isinstance(read := parsed(each), dict) else each for each in found]
