"""Plans of readers and writers of Avro, as plain data: a schema is walked once.

A plan knows what our schemas use (records, arrays, maps, strings, bytes, longs, doubles, booleans, unions of null and one other
type). If it makes records of a model, it also has the limits of the model's fields: a value outside of them is passed
to the model, which reports the exact error. `_avro.c` follows plans.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.base import Record

AvroSchema = dict[str, Any]

LONG = (-(2**63), 2**63 - 1)
"""The range of Avro's long."""

TESTED = ("ge", "le", "min_length", "max_length", "allow_inf_nan", "strict")
"""The limits that records have; infinite numbers and NaN fail every test of a float, and Avro is strict by itself."""


class UnusualError(Exception):
    """A value that only the model can judge."""


class Text(NamedTuple):
    """A string, with its limits of length; or one of these words, if there are any."""

    kind: Literal["string"] = "string"
    least: int = 0
    most: int = sys.maxsize
    words: frozenset[str] | None = None


class Long(NamedTuple):
    """A whole number within these limits."""

    kind: Literal["long"] = "long"
    low: int = LONG[0]
    high: int = LONG[1]


class Double(NamedTuple):
    """A number; `limited` when it has to be within these limits, which NaN never is."""

    kind: Literal["double"] = "double"
    low: float = -sys.float_info.max
    high: float = sys.float_info.max
    limited: bool = False


class Plain(NamedTuple):
    """A value without limits."""

    kind: Literal["bytes", "boolean"]


class Fixed(NamedTuple):
    """A field that an older schema lacks: reading it takes no bytes and gives its default."""

    kind: Literal["fixed"]
    value: Any


class Optional(NamedTuple):
    """A union of null, at this place in it, and one other type."""

    kind: Literal["optional"]
    null: int
    inner: "Plan"


class Many(NamedTuple):
    """An array, read as a tuple or a list, or a map."""

    kind: Literal["array", "map"]
    inner: "Plan"
    as_tuple: bool = False


class Model(NamedTuple):
    """The attributes of an instance of a model: its values, and pydantic's own."""

    record: type[Record]
    names: set[str]
    slots: tuple[Any, ...]
    """The descriptors of pydantic's own attributes: the names that were set, extra and private values."""


class Fields(NamedTuple):
    """A record: its fields in order, and the class that it becomes: a dict, a tuple of some type, or an instance of a
    model.
    """

    kind: Literal["record"]
    names: tuple[str, ...]
    plans: tuple["Plan", ...]
    made: type[dict[str, Any]] | type[tuple[Any, ...]] | Model


Plan = Text | Long | Double | Plain | Fixed | Optional | Many | Fields

Made = Mapping[str, "type[Record | tuple[Any, ...]] | tuple[type[Record], type[tuple[Any, ...]]]"]
"""By the name of a record, the class that it becomes: its model, a tuple, or a named tuple with the same fields as the
model.
"""


def plan_of(schema: AvroSchema, made: Made | None = None, lacking: Mapping[str, type[Record]] | None = None) -> Fields:
    """The plan of a record's schema; records that `made` does not name become dicts.

    `lacking` has the models of an older schema by name: fields that it does not have get their defaults.
    """
    return _Planner(made or {}, lacking or {}).record(schema)


@cache
def records_in(record: type[Record]) -> dict[str, type[Record]]:
    """A record and all records in it, by name."""
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


class _Planner:
    """One walk over a schema."""

    def __init__(self, made: Made, lacking: Mapping[str, type[Record]]) -> None:
        self._made = made
        self._lacking = lacking
        self._types: dict[str, AvroSchema] = {}

    def record(self, schema: AvroSchema) -> Fields:
        self._types[_short(schema["name"])] = schema
        made: Any = self._made.get(_short(schema["name"]), dict)
        model, kind = made if isinstance(made, tuple) else (made, made)
        fields: dict[str, FieldInfo] = model.model_fields if issubclass(model, BaseModel) else {}
        if issubclass(model, BaseModel):
            own = model.__pydantic_decorators__
            unasked = [*own.validators, *own.field_validators, *own.root_validators, *own.model_validators]
            assert not unasked, (model, unasked)
        names, plans = [], []
        for field in schema["fields"]:
            about = fields.get(field["name"])
            limits = _Limits(None, (), kind is not dict)
            if about is not None:
                limits = _Limits(about.annotation, about.metadata, True)
            names.append(sys.intern(field["name"]))
            plans.append(self._plan(field["type"], limits))
        newer = self._lacking.get(_short(schema["name"]))
        if newer is not None:
            for at, (name, field) in enumerate(newer.model_fields.items()):
                if name not in names:
                    names.insert(at, sys.intern(name))
                    plans.insert(at, Fixed("fixed", _default(field, as_list=kind is dict)))
        whole = model_of(kind) if issubclass(kind, BaseModel) else kind
        assert not isinstance(whole, Model) or names == [*fields]
        return Fields("record", tuple(names), tuple(plans), whole)

    def _plan(self, schema: Any, limits: "_Limits") -> Plan:  # noqa: PLR0911 - one for each type
        if isinstance(schema, list):
            null = schema.index("null")
            assert len(schema) == 2, schema
            return Optional("optional", null, self._plan(schema[1 - null], limits))
        kind = schema["type"] if isinstance(schema, dict) else schema
        assert kind in ("string", "long", "double") or limits.has_none(), limits  # no other kind is tested
        match kind:
            case "record":
                return self.record(schema)
            case "array" | "map":
                items = schema["items" if kind == "array" else "values"]
                return Many(kind, self._plan(items, limits.of_items()), limits.as_tuple)
            case "string":
                return Text("string", limits.of("min_length", 0), limits.of("max_length", sys.maxsize), limits.words())
            case "long":
                return Long("long", limits.of("ge", LONG[0]), limits.of("le", LONG[1]))
            case "double":
                low, high = limits.of("ge", -sys.float_info.max), limits.of("le", sys.float_info.max)
                return Double("double", low, high, limits.annotation is not None)
            case "bytes" | "boolean":
                return Plain(kind)
            case name:
                return self.record(self._types[_short(name)])


def _default(field: FieldInfo, *, as_list: bool) -> Any:
    assert field.default_factory is None, "a default that is made anew each time cannot stand in a plan"
    assert not field.is_required(), "a field that an older schema lacks has a default"
    return [] if as_list and field.default == () else field.default


def model_of(record: type[Record]) -> Model:
    """How instances of a record are made."""
    return Model(record, set(record.model_fields), SLOTS)


SLOTS = tuple(vars(BaseModel)[f"__pydantic_{name}__"] for name in ("fields_set", "extra", "private"))
"""The attributes that pydantic keeps in an instance in addition to its values."""


class _Limits(NamedTuple):
    """The values that a field allows beyond its Avro type; `annotation` is None if no model restricts them."""

    annotation: Any
    metadata: Sequence[Any]
    as_tuple: bool
    """Whether arrays are tuples, as everywhere but in dicts."""

    def of(self, name: str, default: Any) -> Any:
        """The limit of this name. A kind of limit that is not tested here must not pass unseen."""
        _, metadata = _bare(self.annotation, self.metadata)
        assert all(any(hasattr(each, known) for known in TESTED) for each in metadata), metadata
        found = [getattr(each, name) for each in metadata if getattr(each, name, None) is not None]
        return (max if name in ("ge", "min_length") else min)(found, default=default)

    def has_none(self) -> bool:
        """Whether the field allows every value of its Avro type."""
        annotation, metadata = _bare(self.annotation, self.metadata)
        return get_origin(annotation) is not Literal and all(hasattr(each, "strict") for each in metadata)

    def words(self) -> frozenset[str] | None:
        """All that the string may be; None when it may be anything."""
        annotation, _ = _bare(self.annotation, ())
        return frozenset(get_args(annotation)) if get_origin(annotation) is Literal else None

    def of_items(self) -> "_Limits":
        """The limits of the items of an array or map."""
        annotation, _ = _bare(self.annotation, ())
        place = 1 if get_origin(annotation) is dict else 0
        return _Limits(get_args(annotation)[place] if annotation is not None else None, (), self.as_tuple)


def _bare(annotation: Any, metadata: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """An annotation without null and without its metadata."""
    if get_origin(annotation) in (Union, UnionType):
        return _bare(next(each for each in get_args(annotation) if each is not NoneType), metadata)
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _bare(inner, [*_flat(more), *metadata])
    return annotation, metadata


def _flat(metadata: Sequence[Any]) -> Iterator[Any]:
    for each in metadata:
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)


def _short(name: str) -> str:
    return name.rpartition(".")[2]
