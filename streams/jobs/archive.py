"""`braid archive`: topics as Avro containers on disk, and back. Replay reads an archive exactly as it reads topics.

Records keep their offsets, times, keys, headers and bytes; the schemas that their headers name are kept in the manifest, so
an archive can be read where its registry is not.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.evidence.signing import SigningKey
from streams.cluster.config import Settings
from streams.cluster.connections import registry_of, start_producer
from streams.jobs.errors import ReplayError, require_topics
from streams.log.container import segments_of
from streams.log.file_reader import FileReader
from streams.log.file_writer import LogWriter
from streams.log.files import LOG, LogFiles
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import send
from streams.log.manifest import ARCHIVE, changes, described, read_manifest, seal
from streams.log.outgoing_record import Outgoing
from streams.log.progress import Say, quiet
from streams.log.record import LogRecord
from streams.log.topic_setup import create_topics, keep_append_times
from streams.log.topics import BY_NAME, CLOSURES, Topic
from streams.log.wire import CONFLUENT, CONFLUENT_HEADER

SEGMENT_BYTES = 64 * 1024 * 1024
"""Size of a compressed file; then the next one begins."""


@dataclass
class Archived:
    """The content of an archive, or of a restored log."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    files: int = 0
    schemas: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


def _schema_id(value: bytes | None) -> int | None:
    if value and value[0] == CONFLUENT and len(value) >= CONFLUENT_HEADER:
        return int(struct.unpack_from(">I", value, 1)[0])
    return None


async def archive(
    settings: Settings,
    out: Path,
    topics: Iterable[Topic],
    key: SigningKey | None,
    say: Say = quiet,
) -> Archived:
    """Copy topics, up to their current ends, to `out`; the manifest comes last. Raises ReplayError for a directory in
    use.
    """
    _make_room(out)
    found, schema_ids, decided = Archived(), set[int](), set[bytes]()
    async with KafkaReader(settings) as log:
        spans = await log.spans(topics)
        require_topics(spans, log.place)
        total = sum(span.end - span.start for parts in spans.values() for span in parts.values())
        files: dict[str, Any] = {}
        with LogWriter(out / LOG, SEGMENT_BYTES) as writer:
            for name, parts in spans.items():
                for number, span in parts.items():
                    async for block in log.blocks(BY_NAME[name], number, span):
                        for record in block:
                            headers = tuple((header, content or b"") for header, content in record.headers)
                            writer.append(name, number, record.key, record.value, record.at, headers, record.offset)
                            if (schema_id := _schema_id(record.value)) is not None:
                                schema_ids.add(schema_id)
                        if name == CLOSURES.name:
                            decided |= {record.key for record in block if record.key}
                        found.records += len(block)
                        say(f"archiving {name}", found.records / max(1, total))
                    writer.publish(name, number)
                    files |= described(out, segments_of(out / LOG, name, number))
        schemas = await _schemas(log, schema_ids, found)
    members = {
        "inputs": {"topics": {name: {str(at): list(span) for at, span in parts.items()} for name, parts in spans.items()}},
        "schemas": schemas,
        "rollouts": sorted(each.decode(errors="backslashreplace") for each in decided),
    }  # fmt: skip
    seal(out, ARCHIVE, files, key, members)
    found.topics, found.partitions = len(spans), max((len(parts) for parts in spans.values()), default=0)
    found.files, found.schemas = len(files), len(schemas)
    found.bytes = sum(each["bytes"] for each in files.values())
    return found


def _make_room(out: Path) -> None:
    if out.exists() and any(out.iterdir()):
        raise ReplayError(f"{out} is not empty; give another directory")
    out.mkdir(parents=True, exist_ok=True)


async def _schemas(log: KafkaReader, schema_ids: set[int], found: Archived) -> dict[str, Any]:
    registry = registry_of(log.settings)
    schemas: dict[str, Any] = {}
    try:
        for schema_id in sorted(schema_ids):
            schema = await registry.schema(schema_id) if registry is not None else None
            if schema is None:
                found.problems.append(f"schema id {schema_id} is in the records and not in the registry")
            else:
                schemas[str(schema_id)] = schema
    finally:
        if registry is not None:
            await registry.close()
    return schemas


def check(directory: Path) -> Archived:
    """Whether every file of an archive is present and unchanged, and no other is there."""
    manifest = read_manifest(directory)
    if manifest.get("kind") != ARCHIVE:
        raise ReplayError(f"{directory} holds no archive that was finished; `braid archive --out DIR` makes one")
    found = Archived(files=len(manifest["files"]), schemas=len(manifest["schemas"]))
    found.problems += changes(directory, manifest)
    found.bytes = sum(said["bytes"] for said in manifest["files"].values())
    return found


async def restore(directory: Path, settings: Settings, prefix: str, say: Say = quiet) -> Archived:
    """Write an archive to new topics with this prefix: same partitions, order, times, keys, headers and bodies.

    Only the header of a value changes, if the registry here gives the schema another id. Offsets stay the same if the
    archived log began at 0.
    """
    found = check(directory)
    if found.problems:
        raise ReplayError(f"{directory}: {found.problems[0]}; restore from a whole copy")
    log = FileReader(directory)
    names = [BY_NAME[name] for name in log.files.manifest["inputs"]["topics"]]
    spans = await log.spans(names)
    partitions = max((number + 1 for parts in spans.values() for number in parts), default=1)
    beside = settings.model_copy(update={"prefix": prefix, "partitions": partitions})
    await _require_empty(beside, names)
    await create_topics(beside, names, own_times=True)
    headers = await _new_headers(beside, log.files)
    producer = await start_producer(beside)
    total = sum(span.end - span.start for parts in spans.values() for span in parts.values())
    try:
        for name, parts in spans.items():
            for number, span in parts.items():
                async for block in log.blocks(BY_NAME[name], number, span):
                    acks = [
                        await send(producer, _copy(record, prefix + name, number, headers), record.at)
                        for record in block
                    ]
                    for ack in acks:
                        await ack
                    found.records += len(block)
                    say(f"restoring {name}", found.records / max(1, total))
    finally:
        await producer.stop()
    await keep_append_times(beside, names)
    found.topics, found.partitions = len(spans), partitions
    return found


async def _require_empty(settings: Settings, topics: list[Topic]) -> None:
    async with KafkaReader(settings) as log:
        held = await log.count(topics)
    if held:
        raise ReplayError(
            f"the topics with prefix {settings.prefix!r} hold {held:,} records; restore to another prefix"
        )


async def _new_headers(settings: Settings, log: LogFiles) -> dict[int, bytes]:
    """For each schema id in the archive, the header with the id of the registry here."""
    schemas = log.schemas
    if not schemas:
        return {}
    registry = registry_of(settings)
    if registry is None:
        raise ReplayError(f"{log.home} was written with a schema registry; set BRAID_REGISTRY to restore it")
    try:
        subjects = {topic.record.__name__: topic for topic in BY_NAME.values() if topic.record is not None}
        made = {}
        for schema_id, schema in sorted(schemas.items()):
            topic = subjects.get(str(schema.get("name", "")).rpartition(".")[2])
            if topic is None:
                continue  # not the id of one of our records; its bytes stay unchanged
            new = await registry.register(f"{settings.prefix}{topic.name}-value", schema)
            made[schema_id] = struct.pack(">bI", CONFLUENT, new)
        return made
    finally:
        await registry.close()


def _copy(record: LogRecord, topic: str, partition: int, headers: dict[int, bytes]) -> Outgoing:
    return Outgoing(topic, partition, record.key, _with_header(record, headers), list(record.headers))


def _with_header(record: LogRecord, headers: dict[int, bytes]) -> bytes | None:
    schema_id = _schema_id(record.value)
    if record.key is None and record.value is None:
        return b""  # Kafka's clients write no record without key and value
    if schema_id is None or schema_id not in headers or record.value is None:
        return record.value
    return headers[schema_id] + record.value[CONFLUENT_HEADER:]
