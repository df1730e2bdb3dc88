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
    source = BytesIO(body)
    reader = newest(record).parsed
    try:
        plain = schemaless_reader(source, writer or reader, reader if writer is not None else None)
    except Exception as error:  # noqa: BLE001 - fastavro raises whatever foreign bytes make it trip over
        raise DecodeError(f"not Avro of {record.__name__}: {type(error).__name__}: {error}") from None
    if source.tell() != len(body):
        raise DecodeError(f"not Avro of {record.__name__}: {len(body) - source.tell()} bytes are left over")
    try:
        return record.model_validate(plain)
    except ValidationError as error:
        raise DecodeError(f"not a valid {record.__name__}: {first_problem(error)}") from None


def digest(body: bytes) -> str:
    """SHA-256 of a body, in hex."""
    return sha256(body).hexdigest()


def first_problem(error: ValidationError) -> str:
    """The first thing wrong, as `field: reason`, without echoing the value."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "record"
    return f"{where}: {problem['msg']}"


def with_content_id(record: AnyRecord, field: str = "record_id") -> AnyRecord:
    """The record with `field` set to a function of everything else in it."""
    blank = record.model_copy(update={field: "-"})
    return record.model_copy(
        update={field: sha256(type(record).__name__.encode() + b"\0" + encode(blank)).hexdigest()[:32]}
    )
