"""Records without pydantic, by code made once for each: of values that we computed, and of values that Avro has typed already.

Of the latter the limits that Avro does not know are tested; what does not pass is left to the model, which says exactly what is
wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.base import Record

P = ParamSpec("P")
R = TypeVar("R")

TESTED = ("ge", "le", "min_length", "max_length", "allow_inf_nan", "strict")
"""The limits that records have; infinite numbers and NaN fail every test of a float, and Avro is strict by itself."""

LONG = (-(2**63), 2**63 - 1)
"""What Avro's long holds: no limit at all."""


class UnusualError(Exception):
    """A value that only the model can judge."""


class _Limits(NamedTuple):
    """What a field allows beyond its Avro type."""

    annotation: Any
    metadata: Sequence[Any]

    def most(self, name: str) -> Any:
        """The limit of this name; None without one. A kind of limit that is not tested here must not pass unseen."""
        assert all(any(hasattr(each, known) for known in TESTED) for each in self.metadata), self.metadata
        return next((getattr(each, name) for each in self.metadata if hasattr(each, name)), None)


@cache
def records_in(record: type[Record]) -> dict[str, type[Record]]:
    """A record and all that occur in it, by name."""
    found = {record.__name__: record}
    for field in record.model_fields.values():
        for inner in _named(field.annotation):
            found |= records_in(inner)
    return found


def _named(annotation: Any) -> Iterator[type[Record]]:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        yield annotation
    for inner in get_args(annotation):
        yield from _named(inner)


@cache
def maker(record: type[Record]) -> Callable[..., Any]:
    """A function from a record's values as Avro has them, in the order of the fields, to the record. It raises UnusualError."""
    scope: dict[str, Any] = {"Unusual": UnusualError, "INFINITE": float("inf")}
    found = {
        name: _condition(name, _Limits(field.annotation, field.metadata), scope)
        for name, field in record.model_fields.items()
    }
    tests = " and ".join(filter(None, found.values()))
    values = {name: name for name in record.model_fields}
    for name, field in record.model_fields.items():
        if get_origin(_without_null(field.annotation)) is tuple:
            values[name] = f"None if {name} is None else tuple({name})"
    return _function(record, ", ".join(values), values, scope, f" if not ({tests}): raise Unusual" if tests else "")


def unchecked(record: Callable[P, R]) -> Callable[P, R]:
    """A maker of records whose values are right because of where they come from: nothing is tested and nothing converted.

    It takes what the model takes. For what we compute ourselves by the thousand; bytes from outside are tested.
    """
    assert isinstance(record, type)
    assert issubclass(record, Record)
    scope: dict[str, Any] = {}
    parameters, values = [], {}
    for name, field in record.model_fields.items():
        made_anew = field.default_factory is not None
        scope[f"default_{name}"] = None if made_anew else field.default
        parameters.append(name if field.is_required() else f"{name}=default_{name}")
        values[name] = f"{{}} if {name} is None else {name}" if made_anew else name
    make: Callable[P, R] = _function(record, f"*, {', '.join(parameters)}", values, scope)
    return make


def _function(
    record: type[Record], parameters: str, values: Mapping[str, str], scope: dict[str, Any], test: str = ""
) -> Callable[..., Any]:
    """A function that puts values, given as expressions, into a new record."""
    lines = [
        f"def make({parameters}):",
        test,
        f" made = new(record); set_values(made, {{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}})",
        " set_fields(made, names); set_extra(made, None); set_private(made, None)",
        " return made",
    ]
    scope |= _SLOTS | {"new": object.__new__, "record": record, "names": set(record.model_fields)}
    exec("\n".join(lines), scope)  # noqa: S102 - made of the model's own field names
    make: Callable[..., Any] = scope["make"]
    return make


_SLOTS = {
    f"set_{name}": vars(BaseModel)[f"__{slot}__"].__set__
    for name, slot in (("values", "dict"), ("fields", "pydantic_fields_set"), ("extra", "pydantic_extra"), ("private", "pydantic_private"))
}  # fmt: skip
"""What an instance of a model consists of."""


def _without_null(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        return next(each for each in get_args(annotation) if each is not NoneType)
    return annotation


def _condition(name: str, limits: _Limits, scope: dict[str, Any]) -> str:  # noqa: PLR0911 - one for each kind of type
    """The test of a value, as an expression; empty when Avro has done it."""
    annotation, metadata = limits
    inner = _without_null(annotation)
    if inner is not annotation:
        condition = _condition(name, _Limits(inner, metadata), scope)
        return f"({name} is None or {condition})" if condition else ""
    if get_origin(inner) is Annotated:
        kind, *more = get_args(inner)
        return _condition(name, _Limits(kind, [*_flat(more), *metadata]), scope)
    if get_origin(inner) is Literal:
        words = f"words_{len(scope)}"
        scope[words] = frozenset(get_args(inner))
        return f"{name} in {words}"
    if get_origin(inner) is tuple:
        each = _condition("each", _Limits(get_args(inner)[0], ()), scope)
        return f"all([{each} for each in {name}])" if each else ""
    if inner is str:
        return _between(f"len({name})", limits.most("min_length"), limits.most("max_length"))
    if inner in (int, float):
        low, high = limits.most("ge"), limits.most("le")
        if (low, high) == (None, None) and inner is float:
            return f"-INFINITE < {name} < INFINITE"
        return "" if (low, high) == LONG else _between(name, low, high)
    assert inner is bool or get_origin(inner) is dict or issubclass(inner, Record), (name, annotation)
    return ""


def _between(value: str, low: Any, high: Any) -> str:
    limits = [f"{value} >= {low!r}"] if low is not None else []
    limits += [f"{value} <= {high!r}"] if high is not None else []
    return " and ".join(limits)


def _flat(metadata: Sequence[Any]) -> Iterator[Any]:
    for each in metadata:
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)
