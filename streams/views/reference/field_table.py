"""Fields of pydantic models as tables in Markdown: name, type, default and the docstring under the field."""

import types
from collections.abc import Iterator
from enum import Enum
from inspect import cleandoc
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from schemas.jsontext import compact

_PLAIN: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", bytes: "bytes", type(None): "null", Any: "any",
    SecretStr: "secret", JsonValue: "JSON",
}  # fmt: skip


class FieldRow(NamedTuple):
    """A field of a model."""

    name: str
    kind: str
    default: str
    """Empty if the field is required."""
    about: str


def fields(model: type[BaseModel]) -> Iterator[FieldRow]:
    """Yield the fields of a model in their order."""
    for name, field in model.model_fields.items():
        kind = type_text(field.annotation) + _bounds(field)
        yield FieldRow(name, kind, default_text(field), " ".join((field.description or "").split()))


def table(model: type[BaseModel]) -> list[str]:
    """The lines of the table of a model's fields."""
    rows = [f"| `{each.name}` | {each.kind} | {_code(each.default)} | {cell(each.about)} |" for each in fields(model)]
    return ["| field | type | default | |", "|---|---|---|---|", *rows]


def about(model: type[BaseModel]) -> str:
    """The docstring of a model."""
    return cleandoc(model.__doc__ or "")


def cell(text: str) -> str:
    """A text inside of a table."""
    return text.replace("|", "\\|")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def type_text(annotation: Any) -> str:
    """The type of a field in words."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _class_text(annotation)
    parts = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Annotated:
            text = type_text(parts[0])
        case origin if origin is Literal:
            text = ", ".join(f"`{part}`" for part in parts)
        case origin if origin in (Union, types.UnionType):
            text = " or ".join(type_text(part) for part in parts)
        case origin if origin in (tuple, list):
            text = f"list of {type_text(parts[0])}"
        case origin if origin is dict:
            text = f"{type_text(parts[1])} by name"
        case _:
            text = str(annotation).lower()
    return text


def _class_text(kind: type) -> str:
    if issubclass(kind, BaseModel):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if issubclass(kind, Enum):
        return ", ".join(f"`{part.value}`" for part in kind)
    return kind.__name__.lower()


def default_text(field: FieldInfo) -> str:
    """The default of a field as JSON; empty where the field is required."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel) and type(value)() == value:
        return ""
    return "" if isinstance(value, SecretStr) else compact(to_jsonable_python(value))


def _bounds(field: FieldInfo) -> str:
    """The range of a number, if it has one worth showing."""
    found = {
        name: getattr(rule, name) for rule in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(rule, name)
    }
    low = f"from {found['ge']}" if "ge" in found else f"above {found['gt']}" if "gt" in found else ""
    high = f"to {found['le']}" if "le" in found else f"below {found['lt']}" if "lt" in found else ""
    if abs(found.get("le", 0)) > 2**40:
        high = ""
    if abs(found.get("ge", 0)) > 2**40:
        low = ""
    return f", {low} {high}".rstrip() if low or high else ""


def _code(text: str) -> str:
    return f"`{cell(text)}`" if text else ""
