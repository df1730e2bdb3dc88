"""Records to Avro bodies and back, without any header: the bytes that "the same bytes" speaks of."""

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from io import BytesIO
from typing import Any, Final, TypeVar

from fastavro import schemaless_reader
from pydantic import ValidationError

from schemas.base import Record
from schemas.codec.avro import COMPILED, Read, Write, reader_of, writer_of
from schemas.codec.plan import UnusualError, records_in
from schemas.errors import DecodeError
from schemas.events import AgentEvent, AgentEvents, EventFields
from schemas.versions import RECORDS, Version, emitted, latest, numbered, unversioned

AnyRecord = TypeVar("AnyRecord", bound=Record)


NEWEST: Final = 0
"""In place of a version's number: the newest one."""


@cache
def version_of(record: type[Record], number: int = NEWEST) -> Version:
    """A version of a record's schema; by default the newest, which facts are written with."""
    if number != NEWEST:
        return numbered(record, number)
    # A record that only occurs inside others has no file of its own; its bytes are only ever hashed.
    return latest(record) if record.__name__ in RECORDS else unversioned(record)


@cache
def _writer(record: type[Record], number: int) -> Write:
    return writer_of(version_of(record, number).schema)


@cache
def _reader(record: type[Record], number: int) -> Read:
    return reader_of(version_of(record, number).schema, None, _lacking(record, number))


def _lacking(record: type[Record], number: int) -> dict[str, type[Record]] | None:
    return None if number == NEWEST else records_in(record)


def _maker(record: type[Record], number: int, *, for_fold: bool = False) -> Read:
    """A reader that makes records, and raises UnusualError for values that the model must check; `for_fold`, events as
    EventFields.
    """
    makers = _FOR_FOLD if for_fold else _MAKERS
    found = makers.get((record, number))
    if found is None:
        made = records_in(record) | ({"AgentEvent": (AgentEvent, EventFields)} if for_fold else {})
        found = makers[record, number] = reader_of(version_of(record, number).schema, made, _lacking(record, number))
    return found


def encode(record: Record, number: int = NEWEST) -> bytes:
    """The Avro body of a record, in a version of its schema."""
    return _writer(type(record), number)(record)


def decode(record: type[AnyRecord], body: bytes, number: int = NEWEST, foreign: Any = None) -> AnyRecord:
    """The record in an Avro body that a version of our schema wrote, or a `foreign` one. Raises DecodeError for anything else."""
    if foreign is None and COMPILED:
        try:
            made: AnyRecord = _whole(record, body, _maker(record, number))
        except UnusualError:
            pass  # the model describes the error
        else:
            return made
    try:
        return record.model_validate(plain_of(record, body, number, foreign))
    except ValidationError as error:
        raise DecodeError(f"not a valid {record.__name__}: {first_problem(error)}") from None


def decode_slice(body: bytes, number: int = NEWEST) -> AgentEvents:
    """The same for a slice, its events as EventFields where that is quicker: only the fold reads it like this."""
    if not COMPILED:
        return decode(AgentEvents, body, number)
    try:
        made: AgentEvents = _whole(AgentEvents, body, _maker(AgentEvents, number, for_fold=True))
    except UnusualError:
        return decode(AgentEvents, body, number)
    return made


def plain_of(record: type[Record], body: bytes, number: int = NEWEST, foreign: Any = None) -> dict[str, Any]:
    """The fields in an Avro body, without the model's checks: for records that were checked when they were made."""
    read = _reader(record, number) if foreign is None else partial(_resolved, record, foreign)
    found: dict[str, Any] = _whole(record, body, read)
    return found


def _whole(record: type[Record], body: bytes, read: Callable[[bytes], tuple[Any, int]]) -> Any:
    try:
        found, end = read(body)
    except UnusualError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign bytes make a reader trip over anything
        raise DecodeError(f"not Avro of {record.__name__}: {type(error).__name__}: {error}") from None
    if end != len(body):
        left = len(body) - end
        problem = f"{left} bytes are left over" if left > 0 else "it ends too early"
        raise DecodeError(f"not Avro of {record.__name__}: {problem}")
    return found


def _resolved(record: type[Record], foreign: Any, body: bytes) -> tuple[Any, int]:
    """Read a body written with a schema that is not one of ours, as our newest one."""
    source = BytesIO(body)
    return schemaless_reader(source, foreign, version_of(record).parsed), source.tell()


def first_problem(error: ValidationError) -> str:
    """The first thing wrong, as `field: reason`, without echoing the value."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "record"
    return f"{where}: {problem['msg']}"


class Bodies(dict[str, bytes]):
    """Avro bodies by content id, of one emission version: a body encoded to find the id is not encoded again."""

    def __init__(self, emission: int) -> None:
        super().__init__()
        self.emission = emission
        self.numbers = emitted(emission)
        """By record, the version of its schema."""
        self._digests: dict[str, bytes] = {}

    def digest(self, content_id: str) -> bytes:
        """SHA-256 of a body: evidence names it, and a replay counts it."""
        found = self._digests.get(content_id)
        if found is None:
            found = self._digests[content_id] = sha256(self[content_id]).digest()
        return found


def with_content_id(
    record: AnyRecord, field: str = "record_id", bodies: Bodies | None = None, older: Write | None = None
) -> AnyRecord:
    """The record with its id, a function of everything else in it; its Avro body goes into `bodies`.

    `bodies` also decide the version of the schema; without them it is the newest, as of every fact. A fact without
    values in newer fields keeps the id that it had before: `older` writes it without them.

    A record that comes with a blank id gets its own and is returned itself; another one is copied.

    The id is the record's first field (checked here), so the body with the id is the body without it and another beginning.
    """
    values = vars(record)
    fresh = record
    if values[field] != BLANK:
        fresh = record.model_copy(update={field: BLANK})
        values = vars(fresh)
    kind = type(record)
    emission = None if bodies is None else bodies.emission
    how = _IDENTIFIED.get((kind, emission))
    if how is None:
        assert next(iter(kind.model_fields)) == field
        number = NEWEST if bodies is None else bodies.numbers[kind.__name__]
        how = _IDENTIFIED[kind, emission] = (kind.__name__.encode() + b"\0", _writer(kind, number))
    salt, write = how
    blank = write(fresh) if older is None else older(fresh)
    found = sha256(salt + blank).hexdigest()[:ID_LENGTH]
    if bodies is not None:
        bodies[found] = ID_PREFIX + found.encode() + blank[len(BLANK_BYTES) :]
    values[field] = found  # a record without its id is not shared yet: it need not be copied to get one
    return fresh


_MAKERS: Final[dict[tuple[type[Record], int], Read]] = {}
_FOR_FOLD: Final[dict[tuple[type[Record], int], Read]] = {}

_IDENTIFIED: Final[dict[tuple[type[Record], int | None], tuple[bytes, Write]]] = {}
"""By kind of record and emission version what sets its ids apart from those of others, and what writes it."""

BLANK: Final = "-"
"""Stands where the id will be."""

BLANK_BYTES: Final = b"\x02-"
"""The same, as Avro writes it."""

ID_LENGTH: Final = 32
"""Hex digits of a content id."""

ID_PREFIX: Final = b"\x40"
"""Its length, as Avro writes it."""
