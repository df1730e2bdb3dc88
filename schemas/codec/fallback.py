"""Avro by fastavro, where `_avro.c` was not compiled: the same bytes and values, more slowly.

fastavro takes and returns dicts; plans define which of them become other classes. It also reads some bytes that are not
Avro (a boolean of 7, a negative branch of a union). Such a value is found because its own bytes are different ones of
the same length.
"""

from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from schemas.codec.plan import AvroSchema, Fields, Fixed, Many, Optional, Plan

Convert = Callable[[Any], Any]


class Writer:
    """Writes objects that have a record's fields as attributes, or tuples of their values."""

    def __init__(self, schema: AvroSchema, plan: Fields) -> None:
        self._schema = parse_schema(schema)
        self._plain = _converter(plan, _to_dict)

    def __call__(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        return self.many((value,))

    def many(self, values: Iterable[Any]) -> bytes:
        """Return the bytes of all values, one after the other."""
        out = BytesIO()
        for value in values:
            plain = value if self._plain is None else self._plain(value)
            schemaless_writer(out, self._schema, plain, disable_tuple_notation=True)
        return out.getvalue()


class Reader:
    """Reads dicts, and tuples where the plan has them; models are validated by the caller."""

    def __init__(self, schema: AvroSchema, plan: Fields) -> None:
        self._schema = parse_schema(schema)
        self._made = _converter(plan, _from_dict)

    def __call__(self, data: bytes, at: int = 0) -> tuple[Any, int]:
        """Return the value at a position, and its end."""
        source, out = BytesIO(data), BytesIO()
        source.seek(at)
        value = self._next(source)
        schemaless_writer(out, self._schema, value, disable_tuple_notation=True)
        end, own = source.tell(), out.getbuffer()
        # Blocks of an array may be laid out in other ways, which take more or fewer bytes.
        if len(own) == end - at and own != data[at:end]:
            raise ValueError("a boolean or a union has a value that Avro does not have")
        return value if self._made is None else self._made(value), end

    def many(self, data: bytes, count: int) -> list[Any]:
        """Return `count` values that fill the data: blocks of our own files, whose bytes are not compared."""
        source = BytesIO(data)
        found = [self._next(source) for _ in range(count)]
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes are left over")
        return found if self._made is None else [*map(self._made, found)]

    def _next(self, source: BytesIO) -> Any:
        try:
            return schemaless_reader(source, self._schema, None)
        except UnicodeDecodeError:
            raise
        except EOFError:
            raise ValueError("it ends too early") from None
        except Exception as error:  # noqa: BLE001 - foreign bytes make a reader trip over anything
            raise ValueError(f"{type(error).__name__}: {error}") from None


def _converter(plan: Plan, of_record: Callable[[Fields, list[Convert | None]], Convert | None]) -> Convert | None:
    """Return the function that converts a value of a plan, using that of records; None if the value stays unchanged."""
    if isinstance(plan, Fields):
        return of_record(plan, [_converter(each, of_record) for each in plan.plans])
    if not isinstance(plan, (Optional, Many)):
        return None
    inner = _converter(plan.inner, of_record)
    if inner is None:
        return tuple if isinstance(plan, Many) and plan.kind == "array" and plan.as_tuple else None
    if isinstance(plan, Optional):
        return partial(_if_any, inner)
    if plan.kind == "map":
        return partial(_values, inner)
    return partial(_tuple if plan.as_tuple else _list, inner)


def _if_any(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _values(convert: Convert, value: Any) -> dict[str, Any]:
    return {key: convert(item) for key, item in value.items()}


def _list(convert: Convert, value: Any) -> list[Any]:
    return [convert(item) for item in value]


def _tuple(convert: Convert, value: Any) -> tuple[Any, ...]:
    return tuple([convert(item) for item in value])


def _to_dict(plan: Fields, inner: list[Convert | None]) -> Convert:
    names, needed = plan.names, frozenset(plan.names)
    converted = [(name, convert) for name, convert in zip(names, inner, strict=True) if convert is not None]

    def to_dict(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple):
            if len(value) != len(names):
                raise ValueError("a tuple has as many values as its record has fields")
            found = dict(zip(names, value, strict=True))
        else:
            found = vars(
                value
            )  # fastavro takes the fields that its schema has, and defaults for those that are not there
            if not needed <= found.keys():
                raise AttributeError(f"{type(value).__name__} lacks {min(needed - found.keys())}")
            found = found.copy() if converted else found
        for name, convert in converted:
            if each := found[name]:  # null, and no items, stay as they are
                found[name] = convert(each)
        return found

    return to_dict


def _from_dict(plan: Fields, inner: list[Convert | None]) -> Convert | None:
    """Convert a dict to the class of a plan, with the defaults of fields that its schema lacks."""
    made, names = plan.made, plan.names
    fixed = {name: each.value for name, each in zip(names, plan.plans, strict=True) if isinstance(each, Fixed)}
    converted = [(name, convert) for name, convert in zip(names, inner, strict=True) if convert is not None]
    if made is dict and not fixed and not converted:
        return None

    def from_dict(value: dict[str, Any]) -> Any:
        found = {name: value[name] if name in value else fixed[name] for name in names} if fixed else value
        for name, convert in converted:
            found[name] = convert(found[name])
        return found if made is dict else tuple.__new__(made, found.values())  # type: ignore[arg-type,type-var]

    return from_dict
