"""The subset of JSON Schema that a `json_schema` constraint may use: keywords that are quick to check on any value.

A schema with any other keyword is rejected when the task is loaded, so that nothing passes unchecked.
"""

from collections.abc import Mapping
from typing import Any, Final

MOST_DEPTH: Final = 20

MOST_VALUES: Final = 300
"""Maximum values of an enum. Every value of a text is compared with all of them."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),), "integer": (int,),
    "number": (int, float),
}  # fmt: skip
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_NOTES: Final = ("title", "description", "$schema", "$id", "$comment", "examples", "default")
_KEYWORDS: Final = frozenset({
    "type", "enum", "const", "properties", "required", "additionalProperties", "items", *_COUNTS, *_NUMBERS, *_NOTES,
})  # fmt: skip


def schema_problem(schema: Any, depth: int = 0) -> str | None:
    """Return the first problem of a schema; None if it is valid."""
    if not isinstance(schema, dict):
        return "expected a schema: an object"
    if depth > MOST_DEPTH:
        return f"nested deeper than {MOST_DEPTH}"
    unknown = next((name for name in schema if name not in _KEYWORDS), None)
    if unknown is not None:
        return f"{unknown}: this keyword is not supported"
    return _own_problem(schema) or _inner_problem(schema, depth)


def _own_problem(schema: dict[str, Any]) -> str | None:
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not all(isinstance(each, str) and each in _TYPES for each in types):
        return f"type: expected one of {', '.join(_TYPES)}"
    if "enum" in schema and not (isinstance(schema["enum"], list) and 0 < len(schema["enum"]) <= MOST_VALUES):
        return f"enum: expected a list of 1 to {MOST_VALUES} values"
    names = schema.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return "required: expected a list of names"
    for name in _COUNTS:
        if name in schema and not (type(schema[name]) is int and schema[name] >= 0):
            return f"{name}: expected a whole number that is not negative"
    for name in _NUMBERS:
        if name in schema and (isinstance(schema[name], bool) or not isinstance(schema[name], (int, float))):
            return f"{name}: expected a number"
    return None


def _inner_problem(schema: dict[str, Any], depth: int) -> str | None:
    inner: dict[str, Any] = {}
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return "properties: expected an object"
    inner |= {f"properties.{name}": each for name, each in properties.items()}
    if "items" in schema:
        inner["items"] = schema["items"]
    if not isinstance(schema.get("additionalProperties", True), bool):
        inner["additionalProperties"] = schema["additionalProperties"]
    return next(
        (f"{name}: {wrong}" for name, each in inner.items() if (wrong := schema_problem(each, depth + 1))), None
    )


def shape_problem(value: Any, schema: Mapping[str, Any], place: str = "") -> str | None:
    """Return the first difference between a value and a schema; None if the value fits."""
    problem = _value_problem(value, schema)
    if problem:
        return f"{place or 'the value'} {problem}"
    if isinstance(value, list) and "items" in schema:
        return _items_problem(value, schema["items"], place)
    return _members_problem(value, schema, place) if isinstance(value, dict) else None


def _items_problem(value: list[Any], schema: Mapping[str, Any], place: str) -> str | None:
    fitting: set[tuple[type, Any]] = set()
    for number, each in enumerate(value):
        known = None if isinstance(each, (list, dict)) else (type(each), each)
        if known in fitting:
            continue
        problem = shape_problem(each, schema, f"{place}[{number}]")
        if problem is not None:
            return problem
        if known is not None:
            fitting.add(known)
    return None


def _value_problem(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return the first problem of a value itself, without its members."""
    types = schema.get("type")
    if types is not None and not _is_any(value, [types] if isinstance(types, str) else types):
        return f"is no {types if isinstance(types, str) else ' or '.join(types)}"
    if "enum" in schema and not _is_listed(value, schema["enum"]):
        return "is none of the allowed values"
    if "const" in schema and not _same(value, schema["const"]):
        return "is not the one allowed value"
    if isinstance(value, (str, list, dict)):
        return _size_problem(value, schema)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return _range_problem(value, schema) if is_number else None


def _is_any(value: Any, types: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    whole = isinstance(value, float) and value.is_integer() and "integer" in types
    return whole or any(isinstance(value, _TYPES[each]) for each in types if each != "boolean")


def _is_listed(value: Any, listed: list[Any]) -> bool:
    if value not in listed:
        return False
    # True and 1 are equal in Python, but not in JSON.
    return value not in (0, 1) or any(_same(value, each) for each in listed)


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b) if isinstance(a, bool) or isinstance(b, bool) else bool(a == b)


def _size_problem(value: str | list[Any] | dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    low, high = {
        str: ("minLength", "maxLength"),
        list: ("minItems", "maxItems"),
        dict: ("minProperties", "maxProperties"),
    }[type(value)]
    if len(value) < schema.get(low, 0):
        return f"is under {low} {schema[low]}"
    return f"is over {high} {schema[high]}" if high in schema and len(value) > schema[high] else None


def _range_problem(value: float, schema: Mapping[str, Any]) -> str | None:
    broken = {
        "minimum": value < schema.get("minimum", value),
        "maximum": value > schema.get("maximum", value),
        "exclusiveMinimum": "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"],
        "exclusiveMaximum": "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"],
    }
    return next((f"is against {name} {schema[name]}" for name, wrong in broken.items() if wrong), None)


def _members_problem(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> str | None:
    missing = next((name for name in schema.get("required", ()) if name not in value), None)
    if missing is not None:
        return f"{place}.{missing} is missing"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, each in value.items():
        rule = known.get(name, others)
        if rule is False:
            return f"{place}.{name} is not allowed"
        if isinstance(rule, dict) and (problem := shape_problem(each, rule, f"{place}.{name}")):
            return problem
    return None
