"""Readers and writers of Avro, made for one schema each: compiled where the package was installed with a C compiler.

Tests hold both ways against fastavro, byte by byte.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from schemas import avro_python
from schemas.avro_plan import AvroSchema, Made, UnusualError, plan_of
from schemas.base import Record
from schemas.compiled import compiled

_C = compiled("schemas._records")

COMPILED = _C is not None
"""Whether the quick way is there."""


class Write(Protocol):
    """Writes what has a record's fields as attributes, or is a tuple of their values."""

    def __call__(self, value: Any, /) -> bytes:
        """The bytes of a value."""

    def many(self, values: Iterable[Any], /) -> bytes:
        """The bytes of all of them, one after the other."""

    def identified(self, value: Any, salt: bytes, /) -> tuple[str, bytes]:
        """The id of a value that has a blank one, and its bytes with that id."""


class Read(Protocol):
    """Reads values from bytes. What is wrong with bytes is a ValueError, what only a model can judge an UnusualError."""

    def __call__(self, data: bytes, at: int = 0, /) -> tuple[Any, int]:
        """The value at a position, and where it ends."""

    def many(self, data: bytes, count: int, /) -> list[Any]:
        """So many values, one after the other, that fill the data."""


def writer_of(schema: AvroSchema) -> Write:
    """A writer of a record."""
    plan = plan_of(schema)
    writer: Write = avro_python.Writer(plan) if _C is None else _C.Writer(plan)
    return writer


def reader_of(schema: AvroSchema, made: Made | None = None, lacking: Mapping[str, type[Record]] | None = None) -> Read:
    """A reader of a record: `made` says what is made of it and of those in it, else they are dicts.

    `lacking` has the models of an older schema by name: fields that it does not have get their defaults.
    """
    plan = plan_of(schema, made, lacking)
    reader: Read = avro_python.Reader(plan) if _C is None else _C.Reader(plan, UnusualError)
    return reader
