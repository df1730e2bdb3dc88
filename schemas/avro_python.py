"""Plans followed in Python: what `_records.c` does, for machines without a C compiler, and to explain it.

A writer appends the parts of a value to a list. A reader takes bytes and a position, and returns a value and where it ends. What is
wrong with bytes is a ValueError; a value that only a model can judge is an UnusualError.
"""

import struct
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from typing import Any

from schemas.avro_plan import Double, Fields, Fixed, Long, Many, Model, Optional, Plain, Plan, Text, UnusualError

Put = Callable[[Any, list[bytes]], None]
Take = Callable[[bytes, int], tuple[Any, int]]

TOO_SHORT = "it ends too early"

BLANK = b"\x02-"
"""Stands where an id will be, as Avro writes it."""

ID_LENGTH = 32
"""Hex digits of a content id."""


class Writer:
    """Writes what has a record's fields as attributes."""

    def __init__(self, plan: Plan) -> None:
        self._put = _put(plan)

    def __call__(self, value: Any) -> bytes:
        """The bytes of a value."""
        return self.many((value,))

    def many(self, values: Iterable[Any]) -> bytes:
        """The bytes of all of them, one after the other."""
        parts: list[bytes] = []
        for value in tuple(values):
            self._put(value, parts)
        return b"".join(parts)

    def identified(self, value: Any, salt: bytes) -> tuple[str, bytes]:
        """The id of a value that has a blank one, and its bytes with that id: those without it, and another beginning."""
        blank = self(value)
        if not blank.startswith(BLANK):
            raise ValueError("the first field of what gets an id is a blank one")
        found = sha256(salt + blank).digest()[: ID_LENGTH // 2].hex()
        return found, long_bytes(ID_LENGTH) + found.encode() + blank[len(BLANK) :]


class Reader:
    """Reads values from bytes."""

    def __init__(self, plan: Plan) -> None:
        self._take = _take(plan)

    def __call__(self, data: bytes, at: int = 0) -> tuple[Any, int]:
        """The value at a position, and where it ends."""
        return self._take(data, at)

    def many(self, data: bytes, count: int) -> list[Any]:
        """So many values, one after the other, that fill the data."""
        found, at = [], 0
        for _ in range(count):
            value, at = self._take(data, at)
            found.append(value)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes are left over")
        return found


# -- writing -----------------------------------------------------------------------------------------------------------


def long_bytes(value: int) -> bytes:
    """A long: zigzag, seven bits to a byte, the lowest first."""
    value = (value << 1) ^ (value >> 63)
    if not 0 <= value < 1 << 64:
        raise OverflowError("an Avro long has 64 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put(plan: Plan) -> Put:  # noqa: PLR0911 - one for each kind
    match plan:
        case Text():
            return lambda value, out: _put_bytes(value.encode(), out)
        case Long():
            return lambda value, out: out.append(long_bytes(value))
        case Double():
            return lambda value, out: out.append(struct.pack("<d", value))
        case Plain("bytes"):
            return _put_bytes
        case Plain():
            return lambda value, out: out.append(b"\1" if value else b"\0")
        case Fixed():
            return lambda _value, _out: None
        case Optional(_, null, inner):
            return partial(_put_optional, null, _put(inner))
        case Many(kind, inner):
            return partial(_put_array if kind == "array" else _put_map, _put(inner))
        case Fields(_, names, plans):
            return partial(_put_fields, [*zip(names, map(_put, plans), strict=True)])


def _put_bytes(value: bytes, out: list[bytes]) -> None:
    out += (long_bytes(len(value)), value)


def _put_optional(null: int, put: Put, value: Any, out: list[bytes]) -> None:
    if value is None:
        out.append(long_bytes(null))
    else:
        out.append(long_bytes(1 - null))
        put(value, out)


def _put_array(put: Put, value: Any, out: list[bytes]) -> None:
    items = tuple(value)
    if items:
        out.append(long_bytes(len(items)))
        for item in items:
            put(item, out)
    out.append(b"\0")


def _put_map(put: Put, value: Any, out: list[bytes]) -> None:
    items = [*value.items()]
    if items:
        out.append(long_bytes(len(items)))
        for key, item in items:
            _put_bytes(key.encode(), out)
            put(item, out)
    out.append(b"\0")


def _put_fields(fields: list[tuple[str, Put]], value: Any, out: list[bytes]) -> None:
    if isinstance(value, tuple):  # its values stand in the order of the fields
        if len(value) != len(fields):
            raise ValueError("a tuple has as many values as its record has fields")
        for (_, put), each in zip(fields, value, strict=True):
            put(each, out)
        return
    for name, put in fields:
        put(getattr(value, name), out)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """The long at a position, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError(TOO_SHORT)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a long of more than 64 bits")
    if value >= 1 << 64:
        raise ValueError("a long of more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def _read_size(data: bytes, at: int) -> tuple[int, int]:
    """The length at a position, and where it ends."""
    size, at = read_long(data, at)
    if size < 0:
        raise ValueError("a negative length")
    return size, at


def _read_block(data: bytes, at: int) -> tuple[int, int]:
    """How many items the next block of an array or map has, and where they begin."""
    items, at = read_long(data, at)
    if items < 0:  # a negative count is followed by the block's size in bytes
        _, at = _read_size(data, at)
        items = -items
    if items > len(data) - at:  # every item takes at least a byte
        raise ValueError("more items than bytes")
    return items, at


def _take(plan: Plan) -> Take:  # noqa: PLR0911 - one for each kind
    match plan:
        case Text():
            return partial(_take_text, plan)
        case Long():
            return partial(_take_long, plan)
        case Double():
            return partial(_take_double, plan)
        case Plain("bytes"):
            return _take_bytes
        case Plain():
            return _take_boolean
        case Fixed(_, value):
            return lambda _data, at: ([*value] if isinstance(value, list) else value, at)
        case Optional(_, null, inner):
            return partial(_take_optional, null, _take(inner))
        case Many(kind, inner, as_tuple):
            return partial(_take_array, _take(inner), as_tuple) if kind == "array" else partial(_take_map, _take(inner))
        case Fields(_, names, plans, made):
            return partial(_take_fields, names, [*map(_take, plans)], made)


def _take_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_size(data, at)
    if size > len(data) - at:
        raise ValueError(TOO_SHORT)
    return data[at : at + size], at + size


def _take_text(limits: Text, data: bytes, at: int) -> tuple[str, int]:
    raw, at = _take_bytes(data, at)
    text = raw.decode()
    if not limits.least <= len(text) <= limits.most or (limits.words is not None and text not in limits.words):
        raise UnusualError
    return text, at


def _take_long(limits: Long, data: bytes, at: int) -> tuple[int, int]:
    value, at = read_long(data, at)
    if not limits.low <= value <= limits.high:
        raise UnusualError
    return value, at


def _take_double(limits: Double, data: bytes, at: int) -> tuple[float, int]:
    if at + 8 > len(data):
        raise ValueError(TOO_SHORT)
    (value,) = struct.unpack_from("<d", data, at)
    if limits.limited and not limits.low <= value <= limits.high:
        raise UnusualError
    return value, at + 8


def _take_boolean(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data):
        raise ValueError(TOO_SHORT)
    if data[at] > 1:
        raise ValueError("not a boolean")
    return data[at] == 1, at + 1


def _take_optional(null: int, take: Take, data: bytes, at: int) -> tuple[Any, int]:
    if at >= len(data):
        raise ValueError(TOO_SHORT)
    if data[at] not in (0, 2):
        raise ValueError("no such branch of a union")
    return (None, at + 1) if data[at] == 2 * null else take(data, at + 1)


def _take_array(take: Take, as_tuple: bool, data: bytes, at: int) -> tuple[Any, int]:
    found = []
    items, at = _read_block(data, at)
    while items:
        for _ in range(items):
            item, at = take(data, at)
            found.append(item)
        items, at = _read_block(data, at)
    return tuple(found) if as_tuple else found, at


def _take_map(take: Take, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    found = {}
    items, at = _read_block(data, at)
    while items:
        for _ in range(items):
            raw, at = _take_bytes(data, at)
            key = raw.decode()  # before the value, as in C: what is wrong first is told
            found[key], at = take(data, at)
        items, at = _read_block(data, at)
    return found, at


def _take_fields(names: tuple[str, ...], takes: list[Take], made: Any, data: bytes, at: int) -> tuple[Any, int]:
    values = []
    for take in takes:
        value, at = take(data, at)
        values.append(value)
    if isinstance(made, Model):
        return instance(made, dict(zip(names, values, strict=True))), at
    return dict(zip(names, values, strict=True)) if made is dict else tuple.__new__(made, values), at


def instance(model: Model, values: dict[str, Any]) -> Any:
    """An instance of a model with these values."""
    made = object.__new__(model.record)
    object.__setattr__(made, "__dict__", values)
    for slot, value in zip(model.slots, (model.names, None, None), strict=True):
        slot.__set__(made, value)
    return made
