"""Records on the wire: an Avro body after a header that identifies its schema.

With a registry the Confluent form (0x00 and the schema's id), without one Avro's single-object form (0xC3 0x01 and the
schema's fingerprint, found among the committed schemas). Writers use one, readers accept both.
"""

import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import fastavro

from schemas.base import Record
from schemas.codec import body as avro_body
from schemas.errors import DecodeError, SchemaError
from schemas.events import AgentEvents
from schemas.versions import Version, committed, emitted, incompatibilities
from streams.cluster.schema_registry import Registry
from streams.log.topics import TOPICS, Topic

CONFLUENT: Final = 0x00
SINGLE_OBJECT: Final = b"\xc3\x01"
CONFLUENT_HEADER: Final = 5
SINGLE_HEADER: Final = 10

AvroSchema = dict[str, Any]


class Writer(NamedTuple):
    """The schema that some bytes were written with."""

    name: str
    """The record's name."""
    number: int = avro_body.NEWEST
    """The version, if it is one of ours."""
    foreign: Any = None
    """The parsed schema for fastavro, if it is not one of ours."""


class UnknownSchemaError(DecodeError):
    """The header names a schema id that has not been looked up yet; `Codec.learn` does that."""

    def __init__(self, schema_id: int) -> None:
        super().__init__(f"schema id {schema_id} is not known")
        self.schema_id = schema_id


class Codec:
    """Encodes and decodes the values of all topics."""

    def __init__(
        self, registry: Registry | None = None, *, prefix: str = "", stored: Mapping[int, AvroSchema] | None = None
    ) -> None:
        self._registry = registry
        self._prefix = prefix
        self._headers: dict[tuple[type[Record], int], bytes] = {}
        # An archive brings the schemas along that its records name.
        self._by_id: dict[int, Writer | None] = {key: _writer(schema) for key, schema in (stored or {}).items()}
        self._by_fingerprint: dict[bytes, Writer] = {}
        for versions in committed().values():
            for version in versions:
                self._by_fingerprint[version.fingerprint] = Writer(version.name, _number(version, versions))

    async def register(self, topics: Iterable[Topic] = TOPICS) -> dict[str, int]:
        """Make our schemas known to the registry; returns the newest ids by subject. A no-op without a registry."""
        ids: dict[str, int] = {}
        if self._registry is None:
            return ids
        for topic in topics:
            if topic.record is None:
                continue
            subject = f"{self._prefix}{topic.name}-value"
            versions = committed()[topic.record.__name__]
            for version in versions:  # older ones, too: rollouts of an earlier emission version are written with them
                schema_id = await self._registry.register(subject, version.schema)
                ids[subject] = schema_id
                number = _number(version, versions)
                self._headers[topic.record, number] = struct.pack(">bI", CONFLUENT, schema_id)
                self._by_id[schema_id] = Writer(version.name, number)
            await self._registry.require_backward(subject)
        return ids

    async def learn(self, schema_ids: Iterable[int]) -> None:
        """Fetch the schemas of ids from the registry. Raises RegistryUnreachableError when it is away: that is no fault
        of the bytes.
        """
        for schema_id in sorted(set(schema_ids) - self._by_id.keys()):
            schema = await self._registry.schema(schema_id) if self._registry is not None else None
            self._by_id[schema_id] = None if schema is None else _writer(schema)

    def encode(self, record: Record, body: bytes | None = None, emission: int | None = None) -> bytes:
        """The wire form of a record; `body` is its Avro body if the caller has it already.

        A record that follows from a rollout has the schema of its `emission` version; a fact has the newest.
        """
        kind = type(record)
        number = avro_body.NEWEST if emission is None else _emitted_number(kind.__name__, emission)
        header = self._headers.get((kind, number))
        if header is None:
            if self._registry is not None:
                raise SchemaError(f"{kind.__name__} is not registered yet; call register() first")
            header = SINGLE_OBJECT + avro_body.version_of(kind, number).fingerprint
            self._headers[kind, number] = header
        return header + (avro_body.encode(record, number) if body is None else body)

    def decode(self, topic: Topic, value: bytes | None) -> Record:
        """The record in a topic's value. Raises UnknownSchemaError for an id that was not fetched, DecodeError for
        anything else.
        """
        record, writer, body = self._named(topic, value)
        return avro_body.decode(record, body, writer.number, writer.foreign)

    def decode_for_fold(self, topic: Topic, value: bytes | None) -> Record:
        """The same as `decode`, with the events of a slice as EventFields."""
        record, writer, body = self._named(topic, value)
        if record is AgentEvents and writer.foreign is None:
            return avro_body.decode_slice(body, writer.number)
        return avro_body.decode(record, body, writer.number, writer.foreign)

    def encode_as(self, topic: Topic, value: bytes | None, record: Record) -> bytes:
        """The Avro body of a record in the version of the schema that a value of its topic was written with."""
        _, writer, _ = self._named(topic, value)
        return avro_body.encode(record, writer.number)

    def fields(self, topic: Topic, value: bytes | None) -> dict[str, Any]:
        """The same as a dict, several times as fast: for records that are only counted."""
        record, writer, body = self._named(topic, value)
        return avro_body.plain_of(record, body, writer.number, writer.foreign)

    def registry_ids(self) -> dict[str, list[int]]:
        """The schema ids of the registry that were met, by the name of the record."""
        found: dict[str, list[int]] = {}
        for schema_id, writer in sorted(self._by_id.items()):
            if writer is not None:
                found.setdefault(writer.name, []).append(schema_id)
        return found

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Look up the schemas that values name and that were never seen: before any of them is decoded. Raises as `learn` does."""
        unknown = self._unknown_ids(values)
        if unknown:
            await self.learn(unknown)

    def _unknown_ids(self, values: Iterable[bytes | None]) -> set[int]:
        unknown = set()
        for header in {value[:CONFLUENT_HEADER] for value in values if value}:
            if header[0] == CONFLUENT and len(header) == CONFLUENT_HEADER:
                (schema_id,) = struct.unpack_from(">I", header, 1)
                if schema_id not in self._by_id:
                    unknown.add(schema_id)
        return unknown

    def _named(self, topic: Topic, value: bytes | None) -> tuple[type[Record], Writer, bytes]:
        if topic.record is None:
            raise DecodeError(f"{topic.name} holds bytes, not records")
        if not value:
            raise DecodeError("the value is empty")
        writer, body = self._split(value)
        if writer.name != topic.record.__name__:
            raise DecodeError(f"the bytes are a {writer.name}, this topic holds {topic.record.__name__}")
        return topic.record, writer, body

    def _split(self, value: bytes) -> tuple[Writer, bytes]:
        if value[0] == CONFLUENT and len(value) >= CONFLUENT_HEADER:
            (schema_id,) = struct.unpack_from(">I", value, 1)
            if schema_id not in self._by_id:
                raise UnknownSchemaError(schema_id)
            writer = self._by_id[schema_id]
            if writer is None:
                raise DecodeError(
                    f"no schema has id {schema_id}" + ("" if self._registry else "; no schema registry is configured")
                )
            return writer, value[CONFLUENT_HEADER:]
        if value.startswith(SINGLE_OBJECT) and len(value) >= SINGLE_HEADER:
            found = self._by_fingerprint.get(value[2:SINGLE_HEADER])
            if found is None:
                raise DecodeError(f"no committed schema has the fingerprint {value[2:SINGLE_HEADER].hex()}")
            return found, value[SINGLE_HEADER:]
        raise DecodeError(f"neither Confluent nor single-object Avro: starts with {value[:2].hex()}")


def body_of(value: bytes) -> bytes:
    """The Avro body of a value, without its header, for byte comparisons."""
    if value[:1] == b"\x00":
        return value[CONFLUENT_HEADER:]
    return value[SINGLE_HEADER:] if value.startswith(SINGLE_OBJECT) else value


def _number(version: Version, versions: tuple[Version, ...]) -> int:
    """The number of a version for readers: None for the newest."""
    return avro_body.NEWEST if version is versions[-1] else version.number


@cache
def _emitted_number(name: str, emission: int) -> int:
    versions = committed()[name]
    number = emitted(emission)[name]
    return avro_body.NEWEST if number == versions[-1].number else number


def _writer(schema: AvroSchema) -> Writer | None:
    name = str(schema.get("name", "")).rpartition(".")[2]
    versions = committed().get(name)
    if schema.get("type") != "record" or not versions:
        return Writer(name or str(schema.get("type")))  # of no record of ours: decode says so by its name
    for version in versions:
        if schema == version.schema:
            return Writer(name, _number(version, versions))
    if incompatibilities(versions[-1].schema, schema):
        return Writer(f"{name} of an incompatible schema")
    return Writer(name, foreign=fastavro.parse_schema(schema))
