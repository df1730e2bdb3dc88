"""Avro by code made for one schema: a writer and a reader per record, a few times as fast as walking the schema each time.

The functions are written as Python source from a committed schema and compiled once, as `namedtuple` does it. They know what
our schemas use (records, arrays, maps, strings, bytes, longs, doubles, booleans, unions of null and one other type); tests hold
them against fastavro, byte by byte.
"""

import struct
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

AvroSchema = dict[str, Any]
Memo = dict[int, tuple[object, bytes]]
"""The bytes of parts that occur in several records, by the identity of the part (which is kept, so that it stays unique)."""

Write = Callable[[Any, Memo], bytes]
Read = Callable[..., tuple[Any, int]]
"""From bytes, and a position in them (0 when left out)."""

SHARED = frozenset({"Message"})
"""Records that are parts of several others: their bytes are remembered."""


def long_bytes(value: int) -> bytes:
    """A long: zigzag, seven bits to a byte."""
    value = (value << 1) ^ (value >> 63)
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if not 0 <= value < 1 << 64:
        raise OverflowError("an Avro long has 64 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """The long at a position, and where it ends."""
    byte = data[at]
    if byte >= 0x80 and (second := data[at + 1]) < 0x80:  # what most lengths take
        value = second << 7 | byte & 0x7F
        return (value >> 1) ^ -(value & 1), at + 2
    start, value, shift = at, 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a long of more than 64 bits")
    if at - start == 6:
        if len(HIGH_BITS) >= MAX_HIGH_BITS:
            HIGH_BITS.clear()
        HIGH_BITS[data[start + 2 : at]] = value & ~0x3FFF
    return (value >> 1) ^ -(value & 1), at


HIGH_BITS: dict[bytes, int] = {}
"""All but the lowest 14 bits of a long of six bytes, by its last four. Times are such longs, and those of eight seconds share
these bits: a reader looks here first."""

MAX_HIGH_BITS = 4096
"""Enough for nine hours of times."""


def read_size(data: bytes, at: int) -> tuple[int, int]:
    """The length at a position, and where it ends."""
    size, at = read_long(data, at)
    if size < 0:
        raise ValueError("a negative length")
    return size, at


def read_block(data: bytes, at: int) -> tuple[int, int]:
    """How many items the next block of an array or map has, and where they begin."""
    items, at = read_long(data, at)
    if items < 0:  # a negative count is followed by the block's size in bytes
        _, at = read_size(data, at)
        items = -items
    if items > len(data) - at:  # every item takes at least a byte
        raise ValueError("more items than bytes")
    return items, at


_TOOLS = {
    "HIGH_BITS": HIGH_BITS,
    "SMALL": [long_bytes(number) for number in range(64)],
    "long_bytes": long_bytes,
    "read_long": read_long,
    "read_size": read_size,
    "read_block": read_block,
    "pack_double": struct.Struct("<d").pack,
    "new": tuple.__new__,
    "unpack_double": struct.Struct("<d").unpack_from,
}


class _Source:
    """Lines of Python, indented as they come."""

    def __init__(self, schema: AvroSchema) -> None:
        self.lines: list[str] = []
        self._names = count()
        self.types: dict[str, AvroSchema] = {}
        self.made: Mapping[str, Callable[..., Any]] = {}
        self.repeating: Mapping[str, int] = {}
        self._learn(schema)

    def _learn(self, schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._learn(branch)
        elif isinstance(schema, dict):
            if schema["type"] == "record":
                self.types[_short(schema["name"])] = schema
                for field in schema["fields"]:
                    self._learn(field["type"])
            for inner in ("items", "values"):
                self._learn(schema.get(inner))

    def new(self) -> str:
        return f"v{next(self._names)}"

    def put(self, depth: int, *lines: str) -> None:
        self.lines += [" " * depth + line for line in lines]

    def resolve(self, schema: Any) -> Any:
        """A type without names: a primitive's name, a definition, or a union."""
        if isinstance(schema, str):
            return self.types.get(_short(schema), schema)
        return schema["type"] if isinstance(schema, dict) and schema["type"] not in _COMPLEX else schema


_COMPLEX = ("record", "array", "map")


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _other(union: list[Any]) -> tuple[int, Any]:
    """The position of null in a union of two, and the other type."""
    assert len(union) == 2, union
    null = union.index("null")
    return null, union[1 - null]


# -- writing -----------------------------------------------------------------------------------------------------------


def writer_of(schema: AvroSchema) -> Write:
    """A function from a record's object to its body."""
    source = _Source(schema)
    top = _short(schema["name"])
    for name in source.types:
        if name in SHARED or name == top:
            source.put(0, f"def write_{name}(record, out, memo):")
            _write_fields(source, 1, "record", name)
    source.put(0, "def write(record, memo):", f" out = []; write_{top}(record, out.append, memo)", " return join(out)")
    scope: dict[str, Any] = _TOOLS | {"join": b"".join}
    exec("\n".join(source.lines), scope)  # noqa: S102 - made above, from a committed schema
    write: Write = scope["write"]
    return write


def _write_fields(source: _Source, depth: int, record: str, name: str) -> None:
    for field in source.types[name]["fields"]:
        value = source.new()
        source.put(depth, f"{value} = {record}.{field['name']}")
        _write(source, depth, value, field["type"])


def _write(source: _Source, depth: int, value: str, schema: Any) -> None:
    kind = source.resolve(schema)
    if isinstance(kind, list):
        null, other = _other(kind)
        source.put(depth, f"if {value} is None: out(SMALL[{null}])", "else:", f" out(SMALL[{1 - null}])")
        _write(source, depth + 1, value, other)
    elif kind == "string":
        raw = source.new()
        source.put(depth, f"{raw} = {value}.encode(); n = len({raw})",
                   f"out(SMALL[n] if n < 64 else long_bytes(n)); out({raw})")  # fmt: skip
    elif kind == "bytes":
        source.put(depth, f"n = len({value}); out(SMALL[n] if n < 64 else long_bytes(n)); out({value})")
    elif kind == "long":
        source.put(depth, f"out(SMALL[{value}] if 0 <= {value} < 64 else long_bytes({value}))")
    elif kind == "double":
        source.put(depth, f"out(pack_double({value}))")
    elif kind == "boolean":
        source.put(depth, f"out(b'\\x01' if {value} else b'\\x00')")
    elif kind["type"] == "record":
        _write_part(source, depth, value, _short(kind["name"]))
    else:
        _write_many(source, depth, value, kind)


def _write_part(source: _Source, depth: int, value: str, name: str) -> None:
    if name not in SHARED:
        _write_fields(source, depth, value, name)
        return
    source.put(depth, f"known = memo.get(id({value}))", "if known is None:", f" part = []; write_{name}({value}, part.append, memo)",
               f" known = memo[id({value})] = ({value}, join(part))", "out(known[1])")  # fmt: skip


def _write_many(source: _Source, depth: int, value: str, kind: AvroSchema) -> None:
    item, size = source.new(), source.new()
    source.put(depth, f"{size} = len({value})", f"if {size}:",
               f" out(SMALL[{size}] if {size} < 64 else long_bytes({size}))")  # fmt: skip
    if kind["type"] == "array":
        source.put(depth + 1, f"for {item} in {value}:")
        _write(source, depth + 2, item, kind["items"])
    else:
        key = source.new()
        source.put(depth + 1, f"for {key}, {item} in {value}.items():")
        _write(source, depth + 2, key, "string")
        _write(source, depth + 2, item, kind["values"])
    source.put(depth, "out(b'\\x00')")


# -- reading -----------------------------------------------------------------------------------------------------------


def reader_of(
    schema: AvroSchema, made: Mapping[str, Callable[..., Any]] | None = None, repeating: Mapping[str, int] | None = None
) -> Read:
    """A function from bytes to a record's plain values and where it ends; `made` has what makes objects of inner records.

    `repeating` says of how many leading fields of a record it is worth a look whether they are the same bytes as last time.
    It raises whatever foreign bytes make it trip over. A string that would end beyond the bytes comes back short, with an
    end beyond them: the caller compares the end with the length.
    """
    source = _Source(schema)
    source.made, source.repeating = made or {}, repeating or {}
    source.put(0, "def read(data, at=0):")
    whole = _read_record(source, 1, _short(schema["name"]))
    source.put(1, f"return {whole}, at")
    scope: dict[str, Any] = _TOOLS | {f"made_{name}": make for name, make in source.made.items()}
    scope |= {f"last_{name}": [(b"", ())] for name in source.repeating}  # what a record began with, and what that means
    exec("\n".join(source.lines), scope)  # noqa: S102 - made above, from a committed schema
    read: Read = scope["read"]
    return read


def _read_record(source: _Source, depth: int, name: str) -> str:
    """Write the lines that read a record's fields; returns the expression that makes a whole of them."""
    fields = source.types[name]["fields"]
    again = source.repeating.get(name, 0)
    values = _read_again(source, depth, name, [field["type"] for field in fields[:again]])
    values += [_read(source, depth, field["type"]) for field in fields[again:]]
    make = source.made.get(name)
    if isinstance(make, type):
        return f"new(made_{name}, ({', '.join(values)}))"  # a NamedTuple, without calling its Python code
    if make is not None:
        return f"made_{name}({', '.join(values)})"
    pairs = [f"{field['name']!r}: {value}" for field, value in zip(fields, values, strict=True)]
    return f"{{{', '.join(pairs)}}}"


def _read_again(source: _Source, depth: int, name: str, fields: list[Any]) -> list[str]:
    """Write the lines that read leading fields, or take those of the last record when the bytes are the same.

    Fields that end beyond the bytes are not remembered: what they began with may begin something else.
    """
    if not fields:
        return []
    source.put(depth, f"known, values = last_{name}[0]", "if known and data.startswith(known, at): at += len(known)", "else:",
               " start = at")  # fmt: skip
    read = [_read(source, depth + 1, field) for field in fields]
    source.put(
        depth + 1, f"values = ({', '.join(read)},)", f"if at <= len(data): last_{name}[0] = (data[start:at], values)"
    )
    names = [source.new() for _ in fields]
    source.put(depth, f"({', '.join(names)},) = values")
    return names


def _read(source: _Source, depth: int, schema: Any) -> str:
    """Write the lines that read a value; returns the name that holds it."""
    kind = source.resolve(schema)
    value = source.new()
    if isinstance(kind, list):
        null, other = _other(kind)
        source.put(depth, "branch = data[at]; at += 1", f"if branch == {2 * null}: {value} = None",
                   f"elif branch == {2 * (1 - null)}:")  # fmt: skip
        inner = _read(source, depth + 1, other)
        source.put(depth, f" {value} = {inner}", "else: raise ValueError('no such branch of a union')")
    elif kind in ("string", "bytes"):
        _read_text(source, depth, value, ".decode()" if kind == "string" else "")
    elif kind == "long":
        source.put(depth, f"{value} = data[at]", f"if {value} < 128: {value} = ({value} >> 1) ^ -({value} & 1); at += 1",
                   "elif data[at + 1] > 127 and (high := HIGH_BITS.get(data[at + 2:at + 6])) is not None:",
                   f" {value} = high | (data[at + 1] & 127) << 7 | {value} & 127; {value} = ({value} >> 1) ^ -({value} & 1); at += 6",
                   f"else: {value}, at = read_long(data, at)")  # fmt: skip
    elif kind == "double":
        source.put(depth, f"({value},) = unpack_double(data, at); at += 8")
    elif kind == "boolean":
        source.put(depth, f"{value} = data[at]; at += 1", f"if {value} > 1: raise ValueError('not a boolean')",
                   f"{value} = {value} == 1")  # fmt: skip
    elif kind["type"] == "record":
        source.put(depth, f"{value} = {_read_record(source, depth, _short(kind['name']))}")
    else:
        _read_many(source, depth, value, kind)
    return value


def _read_text(source: _Source, depth: int, value: str, decoded: str) -> None:
    source.put(depth, "n = data[at]", "if n < 128 and not n & 1: n >>= 1; at += 1", "else: n, at = read_size(data, at)",
               f"{value} = data[at:at + n]{decoded}; at += n")  # fmt: skip


def _read_many(source: _Source, depth: int, value: str, kind: AvroSchema) -> None:
    items = source.new()
    source.put(depth, f"{value} = {'[]' if kind['type'] == 'array' else '{}'}", f"{items}, at = read_block(data, at)",
               f"while {items}:", f" for _ in range({items}):")  # fmt: skip
    if kind["type"] == "array":
        item = _read(source, depth + 2, kind["items"])
        source.put(depth + 2, f"{value}.append({item})")
    else:
        key = _read(source, depth + 2, "string")
        item = _read(source, depth + 2, kind["values"])
        source.put(depth + 2, f"{value}[{key}] = {item}")
    source.put(depth + 1, f"{items}, at = read_block(data, at)")
