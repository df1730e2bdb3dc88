"""A worker as a process of its own, and a look at what it wrote: for tests that kill, stop and compare."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
from aiokafka import TopicPartition

from agents.rollouts.emission import emit
from agents.rollouts.rollout import Rollout
from schemas.base import Record
from streams.cluster.config import Settings
from streams.cluster.connections import registry_of, start_consumer
from streams.log.topics import (
    BRANCHES,
    BY_RECORD,
    COMPLIANCE_EVALS,
    EVIDENCE,
    FACTS,
    MARKS_TABLE,
    RANKINGS,
    Topic,
    changelog,
)
from streams.log.wire import Codec, body_of
from tests.processes import Forked

DEADLINE_S = 60.0


class Stored(NamedTuple):
    """A record as it stands in a topic."""

    partition: int
    offset: int
    at: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Worker:
    """`braid worker` in a process of its own."""

    words: tuple[str, ...] = ("worker",)

    def __init__(self, settings: Settings, log: Path, slot: int = 0, module: str | None = None, **env: str) -> None:
        self.log = log
        self._module = module
        self._env = os.environ | {
            "BRAID_KAFKA": settings.kafka,
            "BRAID_REGISTRY": settings.registry,
            "BRAID_PREFIX": settings.prefix,
            "BRAID_PARTITIONS": str(settings.partitions),
            "BRAID_WORKER__SESSION_TIMEOUT_S": "6",
            "BRAID_WORKER__SLOT": str(slot),
            **env,
        }
        self.process: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> "Worker":
        if self._module is None:
            self.process = Forked(self.words, self._env, self.log)
            return self
        with self.log.open("ab") as out:
            self.process = subprocess.Popen([sys.executable, "-m", self._module], env=self._env, stdout=out, stderr=out)
        return self

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as a machine that loses power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> tuple[int, float]:
        """SIGTERM; returns the exit code and how long it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.terminate()
        code = self.process.wait(30)
        return code, time.monotonic() - began

    async def ready(self) -> None:
        """Wait until it reads the log."""

        async def said() -> bool:
            return b'"event": "ready"' in self.log.read_bytes()

        await until(said, "the worker is ready")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def __enter__(self) -> "Worker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.kill()


@asynccontextmanager
async def follow(settings: Settings, name: str) -> AsyncIterator[Callable[[], Awaitable[list[Stored]]]]:
    """Read a topic again and again with one consumer: each call returns every record up to the topic's end then."""
    consumer = await start_consumer(settings)
    tps = [TopicPartition(name, partition) for partition in range(settings.partitions)]
    found: list[Stored] = []

    async def read() -> list[Stored]:
        ends = await consumer.end_offsets(tps)
        while waiting := [tp for tp in tps if await consumer.position(tp) < ends[tp]]:
            for records in (await consumer.getmany(*waiting, timeout_ms=200, max_records=5000)).values():
                found.extend(
                    Stored(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records
                )
        return sorted(found, key=lambda stored: (stored.partition, stored.offset))

    try:
        consumer.assign(tps)
        for tp, first in (await consumer.beginning_offsets(tps)).items():
            consumer.seek(tp, first)
        yield read
    finally:
        await consumer.stop()


async def read_all(settings: Settings, name: str) -> list[Stored]:
    """Every record of a topic, up to its end now."""
    async with follow(settings, name) as read:
        return await read()


async def records_of(settings: Settings, topic: Topic) -> list[Record]:
    """The decoded records of a topic."""
    codec = await codec_of(settings)
    return [codec.decode(topic, stored.value) for stored in await read_all(settings, settings.prefix + topic.name)]


_CODECS: dict[tuple[str, str], Codec] = {}


async def codec_of(settings: Settings) -> Codec:
    """The codec of a prefix; its schemas are registered once in a test run."""
    place = settings.registry, settings.prefix
    if place not in _CODECS:
        registry = registry_of(settings)
        codec = Codec(registry, prefix=settings.prefix)
        await codec.register()
        if registry is not None:
            await registry.close()
        _CODECS[place] = codec
    return _CODECS[place]


async def marks_of(settings: Settings) -> dict[str, set[bytes]]:
    """Every mark that was ever written, by rollout."""
    return _marks(await read_all(settings, changelog(settings.group, MARKS_TABLE)))


def _marks(records: list[Stored]) -> dict[str, set[bytes]]:
    marks: dict[str, set[bytes]] = defaultdict(set)
    for stored in records:
        if stored.key is not None and stored.value is not None:
            marks[orjson.loads(stored.key)].add(stored.value)
    return marks


async def until(condition: Callable[[], Awaitable[bool]], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until something holds, looking again and again."""
    ends = time.monotonic() + deadline_s
    while not await condition():
        assert time.monotonic() < ends, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.1)


async def until_closed(settings: Settings, rollouts: set[str], deadline_s: float = DEADLINE_S) -> None:
    """Wait until rollouts are marked as closed."""
    async with follow(settings, changelog(settings.group, MARKS_TABLE)) as read:

        async def closed() -> bool:
            return rollouts <= _marks(await read()).keys()

        await until(closed, f"{len(rollouts)} rollouts closed", deadline_s)


async def until_records(settings: Settings, topic: Topic, count: int, deadline_s: float = DEADLINE_S) -> None:
    """Wait until a topic has so many records."""
    async with follow(settings, settings.prefix + topic.name) as read:

        async def enough() -> bool:
            return len(await read()) >= count

        await until(enough, f"{count} in {topic.name}", deadline_s)


class Sinks(NamedTuple):
    """The records of the sinks."""

    bodies: dict[str, dict[str, set[bytes]]]
    """By topic and record id, every body seen (evidence without its signature)."""
    written: int
    """How many records in all, repetitions included."""


SINKS = (
    BRANCHES,
    RANKINGS,
    COMPLIANCE_EVALS,
    EVIDENCE,
    *(topic for topic in BY_RECORD.values() if topic.name.startswith("training.")),
)


async def sinks_of(settings: Settings) -> Sinks:
    """All derived and sink records."""
    codec = await codec_of(settings)
    bodies: dict[str, dict[str, set[bytes]]] = {topic.name: defaultdict(set) for topic in SINKS}
    written = 0
    for topic in SINKS:
        for stored in await read_all(settings, settings.prefix + topic.name):
            assert stored.value is not None
            record = codec.decode(topic, stored.value)
            written += 1
            bodies[topic.name][_identity(record)].add(_body(record, codec))
    return Sinks(bodies, written)


def _identity(record: Record) -> str:
    return str(getattr(record, "record_id", None) or record.ranking_id)  # type: ignore[attr-defined]


def _body(record: Record, codec: Codec) -> bytes:
    unsigned = record.model_copy(update={"signature": None}) if "signature" in type(record).model_fields else record
    return body_of(codec.encode(unsigned))


async def refold(settings: Settings) -> dict[str, dict[str, bytes]]:
    """The records that the facts in the log give when they are folded afresh, topic by topic: body by topic and record
    id."""
    codec = await codec_of(settings)
    rollouts: dict[str, Rollout] = {}
    for topic in FACTS:
        for stored in await read_all(settings, settings.prefix + topic.name):
            try:
                fact = codec.decode(topic, stored.value)
            except Exception:  # noqa: BLE001 - what cannot be decoded is a dead letter, not a fact
                continue
            assert stored.key is not None
            rollout = rollouts.setdefault(
                stored.key.decode(errors="replace"), Rollout(stored.key.decode(errors="replace"))
            )
            rollout.add(fact, stored.at, (topic.name, stored.partition, stored.offset))  # type: ignore[arg-type]
    found: dict[str, dict[str, bytes]] = {topic.name: {} for topic in SINKS}
    for rollout in rollouts.values():
        if rollout.has_closed_facts():
            emission = emit(rollout)
            for record in (
                *emission.branches,
                emission.ranking,
                *emission.compliance,
                *emission.rows,
                *emission.rejected,
                *emission.evidence,
            ):
                found[BY_RECORD[type(record)].name][_identity(record)] = _body(record, codec)
    return found


async def assert_sinks_are_the_fold_of_the_log(settings: Settings) -> Sinks:
    """Every record in the sinks is what the log gives, byte for byte, and nothing is missing; repetitions are identical."""
    sinks, folded = await sinks_of(settings), await refold(settings)
    for topic, bodies in folded.items():
        extra = sinks.bodies[topic].keys() - bodies.keys()
        # A branch is announced when it ends; an attempt that was replaced later has its record, too.
        assert not extra or topic == BRANCHES.name, f"{topic}: records that the log does not give"
        assert all(sinks.bodies[topic][record_id] == {body} for record_id, body in bodies.items()), (
            f"{topic}: other bytes"
        )
    return sinks
