"""Readers and writers of Avro, made for one schema each: `_avro.c`, or fastavro where the package was installed without a compiler.

Tests compare both with each other, byte by byte.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from schemas.base import Record
from schemas.codec import fallback
from schemas.codec.plan import AvroSchema, Made, UnusualError, plan_of

try:
    from schemas.codec import _avro
except ImportError:
    COMPILED = False
else:
    COMPILED = True
"""Whether the C module is used."""


class Write(Protocol):
    """Writes objects that have a record's fields as attributes, or tuples of their values."""

    def __call__(self, value: Any, /) -> bytes:
        """Return the bytes of a value."""

    def many(self, values: Iterable[Any], /) -> bytes:
        """Return the bytes of all values, one after the other."""


class Read(Protocol):
    """Reads values from bytes. Raises ValueError for wrong bytes, UnusualError for a value that only the model can judge."""

    def __call__(self, data: bytes, at: int = 0, /) -> tuple[Any, int]:
        """Return the value at a position, and its end."""

    def many(self, data: bytes, count: int, /) -> list[Any]:
        """Return `count` values that fill the data."""


def writer_of(schema: AvroSchema) -> Write:
    """Make a writer of a record."""
    plan = plan_of(schema)
    return _avro.Writer(plan) if COMPILED else fallback.Writer(schema, plan)


def reader_of(schema: AvroSchema, made: Made | None = None, lacking: Mapping[str, type[Record]] | None = None) -> Read:
    """Make a reader of a record: `made` maps the names of records to their classes; the others become dicts.

    `lacking` has the models of an older schema by name: fields that it does not have get their defaults.
    """
    plan = plan_of(schema, made, lacking)
    return _avro.Reader(plan, UnusualError) if COMPILED else fallback.Reader(schema, plan)
