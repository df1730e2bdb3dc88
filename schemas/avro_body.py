"""Records to Avro bodies and back, without any header: the bytes that "the same bytes" speaks of."""

from hashlib import sha256
from io import BytesIO
from typing import Any, TypeVar

from fastavro import schemaless_reader, schemaless_writer
from pydantic import ValidationError

from schemas.base import Record
from schemas.errors import DecodeError
from schemas.versions import RECORDS, Version, latest, unversioned

AnyRecord = TypeVar("AnyRecord", bound=Record)

_newest: dict[type[Record], Version] = {}


def newest(record: type[Record]) -> Version:
    """The schema that records of this type are written with."""
    version = _newest.get(record)
    if version is None:
        # A record that only occurs inside others has no file of its own; its bytes are only ever hashed.
        version = _newest[record] = latest(record) if record.__name__ in RECORDS else unversioned(record)
    return version


def encode(record: Record) -> bytes:
    """The Avro body of a record."""
    out = BytesIO()
    schemaless_writer(out, newest(type(record)).parsed, record.plain(), disable_tuple_notation=True)
    return out.getvalue()


def decode(record: type[AnyRecord], body: bytes, writer: dict[str, Any] | None = None) -> AnyRecord:
    """The record in an Avro body that `writer` (default: our newest schema) wrote. Raises DecodeError for anything else."""
    try:
        return record.model_validate(plain_of(record, body, writer))
    except ValidationError as error:
        raise DecodeError(f"not a valid {record.__name__}: {first_problem(error)}") from None


def plain_of(record: type[Record], body: bytes, writer: dict[str, Any] | None = None) -> dict[str, Any]:
    """The fields in an Avro body, without the model's checks: for records that were checked when they were made."""
    source = BytesIO(body)
    reader = newest(record).parsed
    try:
        plain: Any = schemaless_reader(source, writer or reader, reader if writer is not None else None)
    except Exception as error:  # noqa: BLE001 - fastavro raises whatever foreign bytes make it trip over
        raise DecodeError(f"not Avro of {record.__name__}: {type(error).__name__}: {error}") from None
    if source.tell() != len(body):
        raise DecodeError(f"not Avro of {record.__name__}: {len(body) - source.tell()} bytes are left over")
    found: dict[str, Any] = plain
    return found


def digest(body: bytes) -> str:
    """SHA-256 of a body, in hex."""
    return sha256(body).hexdigest()


def first_problem(error: ValidationError) -> str:
    """The first thing wrong, as `field: reason`, without echoing the value."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "record"
    return f"{where}: {problem['msg']}"


Bodies = dict[str, bytes]
"""Avro bodies by content id: what was encoded to find the id need not be encoded again."""


def with_content_id(record: AnyRecord, field: str = "record_id", bodies: Bodies | None = None) -> AnyRecord:
    """The record with its id, a function of everything else in it; its Avro body goes into `bodies`.

    The id is the record's first field (checked here), so the body with the id is the body without it and another beginning.
    """
    assert next(iter(type(record).model_fields)) == field
    blank = encode(record if getattr(record, field) == BLANK else record.model_copy(update={field: BLANK}))
    found = sha256(type(record).__name__.encode() + b"\0" + blank).hexdigest()[:ID_LENGTH]
    if bodies is not None:
        bodies[found] = bytes((2 * ID_LENGTH,)) + found.encode() + blank[1 + len(BLANK) :]
    return record.model_copy(update={field: found})


BLANK = "-"
"""Stands where the id will be."""

ID_LENGTH = 32
"""Hex digits of a content id; below 64, so that Avro writes the length of the string in one byte."""
