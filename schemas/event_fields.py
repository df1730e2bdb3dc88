"""Fields of an event's data as rows of a table: name, type, whether it is required, and a sentence about it.

Fields of kinds that have a model are read from the model, so that the table and the check cannot differ.
"""

from typing import Any, NamedTuple

from pydantic import BaseModel

TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
"""JSON types in the words of the table."""


class EventField(NamedTuple):
    """One field of an event's data."""

    name: str
    """Its path inside of data: `context.keep`, `tool_calls[].name`."""
    type: str
    """Its JSON type, in words."""
    required: bool
    """Whether an event without it is incomplete."""
    about: str
    """One sentence."""


def must(name: str, kind: str, about: str) -> EventField:
    """A required field."""
    return EventField(name, kind, True, about)


def may(name: str, kind: str, about: str) -> EventField:
    """An optional field."""
    return EventField(name, kind, False, about)


def model_table(model: type[BaseModel]) -> tuple[EventField, ...]:
    """The fields of a model and of the models inside it, in their order."""
    schema = model.model_json_schema()
    return tuple(_rows(schema, schema.get("$defs", {}), ""))


def _rows(schema: dict[str, Any], inner: dict[str, Any], prefix: str) -> list[EventField]:
    rows: list[EventField] = []
    for name, part in schema["properties"].items():
        about = part.get("description", "").replace("\n", " ")
        rows.append(EventField(prefix + name, _type(part), name in schema.get("required", ()), about))
        for found, suffix in _models(part):
            rows += _rows(inner[found], inner, f"{prefix}{name}{suffix}.")
    return rows


def _type(part: dict[str, Any]) -> str:
    """A type in words; null is left out, because an optional field may always be null."""
    if "enum" in part:
        return ", ".join(part["enum"])
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_type(each) for each in part["anyOf"] if each.get("type") != "null"))
    if "$ref" in part:
        return "object"
    kind = part.get("type")
    if kind == "array":
        item = _type(part.get("items") or {})
        return "array" if item == "any" else f"array of {item}s" if item in ("object", "text") else f"array of {item}"
    return "object" if kind == "object" else TYPES.get(kind or "", "any")


def _models(part: dict[str, Any]) -> list[tuple[str, str]]:
    """The names of the models inside a field, each with the suffix that leads into it."""
    if "$ref" in part:
        return [(part["$ref"].rpartition("/")[2], "")]
    if part.get("type") == "array":
        return [(name, "[]" + suffix) for name, suffix in _models(part.get("items") or {})]
    return [found for each in part.get("anyOf", ()) for found in _models(each)]
