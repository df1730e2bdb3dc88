"""Random records of any model: every field by its type and limits."""

import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from schemas.base import MAX_EXACT, Record

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def records(model: type[Record]) -> st.SearchStrategy[Record]:
    """Instances of a model."""
    return st.fixed_dictionaries({name: _field(info) for name, info in model.model_fields.items()}).map(
        model.model_validate
    )


def _field(info: FieldInfo) -> st.SearchStrategy[Any]:
    return _annotation(info.annotation, info.metadata)


def _annotation(annotation: Any, limits: list[Any]) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        inner = [
            limit for each in arguments[1:] for limit in (each.metadata if isinstance(each, FieldInfo) else [each])
        ]
        return _annotation(arguments[0], [*limits, *inner])
    if origin in (Union, types.UnionType):
        return st.one_of(*(_annotation(each, limits) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_annotation(arguments[0], []), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXT, _annotation(arguments[1], []), max_size=3)
    return _plain(
        annotation,
        {
            name: getattr(limit, name)
            for limit in limits
            for name in ("ge", "gt", "le", "min_length")
            if hasattr(limit, name)
        },
    )


def _plain(annotation: Any, limits: dict[str, Any]) -> st.SearchStrategy[Any]:
    simple = {types.NoneType: st.none(), bool: st.booleans(), bytes: st.binary(max_size=20)}
    if annotation in simple:
        return simple[annotation]
    if annotation is int:
        low = limits.get("ge", limits["gt"] + 1 if "gt" in limits else -MAX_EXACT)
        return st.integers(low, limits.get("le", MAX_EXACT))
    if annotation is float:
        return st.floats(limits.get("ge"), limits.get("le"), allow_nan=False, allow_infinity=False)
    if annotation is str:
        return st.text(st.characters(exclude_categories=("Cs",)), min_size=limits.get("min_length", 0), max_size=20)
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return records(annotation)
    raise TypeError(f"no strategy for {annotation!r}")
