"""Records to verify, wherever they lie: JSON lines, a JSON file, the Avro containers of an embedded log, topics of a cluster.

Everything is read record by record, with its position for people. What cannot be read is said at its place, and the rest
goes on.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import fastavro
import orjson
from aiokafka import TopicPartition
from fastavro import schemaless_reader, schemaless_writer

from agents.evidence.canonical import CanonicalError, canonical_bytes, parse_json
from agents.evidence.verify import Evidence, read_record
from schemas.base import Record
from schemas.versions import committed
from streams.cluster import ClusterError, start_admin, start_consumer
from streams.config import Settings
from streams.embedded import SCHEMA
from streams.topics import Topic

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of one line: more than the largest record has as JSON."""

WHOLE_LIMIT = 64 * 1024 * 1024
"""Bytes of a JSON file that is not lines: only such a file is read at once."""

BATCH = 500
"""Records taken from a consumer at once."""

STALLED_MS = 30_000
"""Without a record for this long, a cluster that has more to give is taken to be away."""

Read = Callable[[int], None]
"""Told how many bytes (or records of a topic) were read."""


class Text(NamedTuple):
    """One line."""

    position: str
    text: bytes


class Stored(NamedTuple):
    """One record of a log, or why there is none."""

    position: str
    key: bytes | None
    value: bytes | None
    problem: str = ""


class Fetched(NamedTuple):
    """One record of a topic."""

    topic: Topic
    place: TopicPartition
    offset: int
    stored: Stored


def lines_of(source: BinaryIO, name: str, read: Read) -> Iterator[Text]:
    """The lines that are not blank."""
    number = 0
    while text := source.readline(LINE_LIMIT):
        number += 1
        read(len(text))
        line = text.removesuffix(b"\n").removesuffix(b"\r")
        if line.strip():
            yield Text(f"{name}:{number}", line)


def evidence_of(path: Path, read: Read) -> Iterator[Evidence]:
    """The records of a JSON file: one a line, or one record or an array as the whole file."""
    whole = _whole(path)
    if whole is not None:
        read(path.stat().st_size)
        yield from whole
        return
    with path.open("rb") as source:
        for position, text in lines_of(source, str(path), read):
            yield read_record(text, position)


def _whole(path: Path) -> list[Evidence] | None:
    """The records of a file that is one JSON text; None when its lines are to be read one by one."""
    with path.open("rb") as source:
        first = next((line for line in iter(lambda: source.readline(LINE_LIMIT), b"") if line.strip()), b"").strip()
    array, named = first.startswith(b"["), path.suffix == ".json"
    if not (array or named) or path.stat().st_size > WHOLE_LIMIT:
        return None
    if not array and read_record(first, "").record is not None and path.read_bytes().strip() != first:
        return None  # the first line is a record by itself, and there are more
    try:
        value = parse_json(path.read_bytes())
    except CanonicalError as error:
        # An array that does not parse may be lines of which the first is damaged; a .json file is what it says.
        return [Evidence(str(path), None, str(error))] if named else None
    if isinstance(value, list):
        return [_record(f"{path}[{index}]", item) for index, item in enumerate(value)]
    return [_record(str(path), value)]


def _record(position: str, value: Any) -> Evidence:
    if isinstance(value, dict):
        return Evidence(position, value)
    return Evidence(position, None, "not a record: a JSON object is expected")


def stored_in(path: Path, read: Read) -> Iterator[Stored]:
    """The records of one file of an embedded log; where it is damaged, the last one says so."""
    offset, before = -1, 0
    with path.open("rb") as source:
        try:
            reader: Any = fastavro.reader(source)
            name = reader.writer_schema.get("name")
            if name != SCHEMA["name"]:
                yield Stored(f"{path}", None, None, f"no file of an embedded log: it holds {name}")
                return
            for row in reader:
                offset = row["offset"]
                read(source.tell() - before)
                before = source.tell()
                yield Stored(f"{path}@{offset}", row["key"], row["value"])
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever foreign bytes make it trip over
            yield Stored(
                f"{path}@{offset + 1}", None, None, f"the file is damaged here: {type(error).__name__}: {error}"
            )


def differs_in_json(record: Record, text: bytes) -> Callable[[str], str]:
    """Compare a row that is a JSON line: by the Avro body of its record, in the schema version that was current when it was made."""

    def differs(digest: str) -> str:
        plain = record.plain()
        for version in reversed(committed()[type(record).__name__]):
            out = BytesIO()
            schemaless_writer(out, version.parsed, plain, disable_tuple_notation=True)
            if sha256(out.getvalue()).hexdigest() != digest:
                continue
            if orjson.dumps(plain) == text:
                return ""
            # Another spelling of the same values is fine; a value that only our reader takes for the same one is not.
            stored: Any = schemaless_reader(BytesIO(out.getvalue()), version.parsed, None)
            same = canonical_bytes(parse_json(text), big_integers="exact") == canonical_bytes(
                stored, big_integers="exact"
            )
            return "" if same else "changed: a field is missing, or has another type"
        return "changed: its digest is not the one that was signed"

    return differs


def differs_in_avro(body: bytes) -> Callable[[str], str]:
    """Compare a row that is an Avro body: the very bytes that were digested."""
    found = sha256(body).hexdigest()
    return lambda digest: "" if found == digest else "changed: its digest is not the one that was signed"


class TopicReader:
    """Reads topics of a cluster from their beginning to a given end, outside any group."""

    def __init__(self, settings: Settings, topics: Iterable[Topic]) -> None:
        self._settings = settings
        self._topics = {settings.prefix + topic.name: topic for topic in topics}
        self._partitions: list[TopicPartition] = []
        self._consumer: Any = None

    async def __aenter__(self) -> Self:
        admin = await start_admin(self._settings)
        try:
            described = {answer["topic"]: answer for answer in await admin.describe_topics()}
        finally:
            await admin.close()
        for name in self._topics:
            if name not in described:
                raise ClusterError(
                    f"there is no topic {name} on {self._settings.kafka}; is BRAID_PREFIX right? `braid up` creates topics"
                )
            self._partitions += [TopicPartition(name, part["partition"]) for part in described[name]["partitions"]]
        self._consumer = await start_consumer(self._settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def ends(self, *topics: Topic) -> dict[TopicPartition, int]:
        """Where the partitions of these topics end now."""
        wanted = [place for place in self._partitions if self._topics[place.topic] in topics]
        ends: dict[TopicPartition, int] = await self._consumer.end_offsets(wanted)
        return ends

    async def read(self, ends: dict[TopicPartition, int]) -> AsyncIterator[Fetched]:
        """Every record before these ends; of a partition in order."""
        starts = await self._consumer.beginning_offsets(list(ends))
        left = {place: end for place, end in ends.items() if starts[place] < end}
        self._consumer.assign(list(left))
        for place in left:
            self._consumer.seek(place, starts[place])
        while left:
            batches = await self._consumer.getmany(*left, timeout_ms=STALLED_MS, max_records=BATCH)
            if not batches and not await self._moved(left):
                raise ClusterError(
                    f"Kafka at {self._settings.kafka} stopped answering while {next(iter(left)).topic} was read; try again"
                )
            for place, records in batches.items():
                for record in records:
                    if record.offset < left[place]:
                        position = f"{place.topic}/{place.partition}@{record.offset}"
                        yield Fetched(
                            self._topics[place.topic], place, record.offset, Stored(position, record.key, record.value)
                        )
            await self._moved(left)

    async def _moved(self, left: dict[TopicPartition, int]) -> bool:
        """Take off what has been read to its end; the last offsets may be no records at all."""
        done = [place for place, end in left.items() if await self._consumer.position(place) >= end]
        for place in done:
            del left[place]
            self._consumer.pause(place)
        return bool(done)
