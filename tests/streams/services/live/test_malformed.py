"""Poison on the fact topics: the worker stays up, every bad record is a dead letter, every good neighbour counts."""

import asyncio
import random
import struct
from pathlib import Path

import pytest
from confluent_kafka import Producer

from agents.facts.fact import Fact, rollout_of
from agents.importers.lines import LineReader
from schemas.events import AgentEvent, AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_producer
from streams.log.kafka_writer import FactWriter
from streams.log.letters import read_letter
from streams.log.topic_setup import ensure_topics
from streams.log.topics import AGENT_EVENTS, BY_RECORD, DEAD_LETTERS, FACTS, LIFECYCLE, RANKINGS
from tests.live import Worker, codec_of, read_all, records_of, until, until_closed, until_records

pytestmark = pytest.mark.kafka

BAD = 1000


def poison(number: int, good: bytes, chance: random.Random) -> tuple[bytes | None, bytes | None]:
    """A key and a value that are not a fact, in one of many ways."""
    body = good[5:]
    header = good[:5]
    nan = AgentEvents(rollout_id="x", branch_index=0, events=(AgentEvent(channel="c", event="e", data='{"a": NaN}'),))
    deep = AgentEvents(
        rollout_id="x",
        branch_index=0,
        events=(AgentEvent(channel="c", event="e", data='{"a":' * 5000 + "1" + "}" * 5000),),
    )
    not_object = AgentEvents(rollout_id="x", branch_index=0, events=(AgentEvent(channel="c", event="e", data="[1]"),))
    from schemas.avro_body import encode

    ways = [
        (b"k", chance.randbytes(chance.randrange(1, 400))),
        (b"good", good[: chance.randrange(0, len(good))]),
        (b"good", struct.pack(">bI", 0, chance.randrange(10_000, 2**31)) + body),
        (b"good", struct.pack(">bI", 0, 1) + chance.randbytes(60)),
        (b"good", header + body + b"tail"),
        (b"another-key", good),
        (None, good),
        (b"\xff\xfe\xfa", good),
        (b"good", None),
        (b"good", b""),
        (b"good", b"\xc3\x01" + chance.randbytes(8) + body),
        (b"good", header + b"\x06" + b"\xff\xff\xff" + body),
        (b"good", b"A" * chance.choice([10, 1_000, 200_000])),
        (b"x", header + encode(nan)),
        (b"x", header + encode(deep)),
        (b"x", header + encode(not_object)),
        (b"good", b'{"rollout_id": "good", "branch_index": 0}'),
    ]
    return ways[number % len(ways)]


def opening_without_tools() -> Lifecycle:
    """A record that is valid Avro of a valid model, and no opening."""
    return Lifecycle(opened=RolloutOpened(rollout_id="x", task="t", tools="not JSON"))


def nothing_at_all(settings: Settings, topic: str, partition: int) -> int:
    """Write a record without a key and without a value; returns its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": settings.kafka})
    producer.produce(topic, partition=partition, on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.flush(30)
    return offsets[0]


async def test_a_thousand_malformed_records_stop_nobody(settings: Settings, tmp_path: Path) -> None:
    """Each one is kept with its topic, partition, offset and reason, bytes untouched; the good rollout closes."""
    await ensure_topics(settings)
    codec = await codec_of(settings)
    reader = LineReader()

    def facts(line: dict[str, object]) -> list[Fact]:
        return list(reader.read_object({"rollout_id": "good"} | line))

    answer = {"event": "final_answer", "data": {"answer": "yes"}}
    good = [
        *facts({"type": "rollout", "task": "t", "branches": 1, "required": ["build"]}),
        *facts({"type": "event", "branch_index": 0, "event": answer}),
        *facts({"type": "build", "branch_index": 0, "status": "success", "exit_code": 0}),
    ]
    chance = random.Random(7)
    sent: dict[tuple[str, int, int], tuple[bytes | None, bytes | None]] = {}
    producer = await start_producer(settings)
    try:
        for number in range(BAD):
            if number in (300, 600, 900):
                fact = good[number // 300 - 1]
                partition = partition_of(rollout_of(fact), settings.partitions)
                topic = settings.prefix + BY_RECORD[type(fact)].name
                await producer.send(topic, codec.encode(fact), key=b"good", partition=partition)
            topic = settings.prefix + (AGENT_EVENTS.name if number % 17 > 12 else chance.choice(FACTS).name)
            key, value = poison(number, codec.encode(good[1]), chance)
            if topic.endswith(AGENT_EVENTS.name) and key == b"good" and value == codec.encode(good[1]):
                continue
            stored = await producer.send_and_wait(topic, value, key=key, partition=number % settings.partitions)
            sent[topic, stored.partition, stored.offset] = (key, value)
        topic, unusable = settings.prefix + LIFECYCLE.name, codec.encode(opening_without_tools())
        stored = await producer.send_and_wait(topic, unusable, key=b"x", partition=0)
        sent[topic, stored.partition, stored.offset] = (b"x", unusable)
        topic = settings.prefix + AGENT_EVENTS.name
        sent[topic, 1, nothing_at_all(settings, topic, 1)] = (
            None,
            b"",
        )  # Kafka has records of nothing, its clients write none
    finally:
        await producer.stop()
    with Worker(settings, tmp_path / "worker.log") as worker:
        await until_closed(settings, {"good"})
        await until_records(settings, DEAD_LETTERS, len(sent))
        assert worker.alive
        assert worker.stop()[0] == 0
    letters = {}
    for stored in await read_all(settings, settings.prefix + DEAD_LETTERS.name):
        letter = read_letter(stored.key, stored.value, stored.headers)
        letters[letter.topic, letter.partition, letter.offset] = letter
        assert letter.reason in ("undecodable", "bad_event", "bad_opening", "late")
        assert letter.message
    assert {place: (letter.key, letter.value) for place, letter in letters.items()} == sent
    (ranking,) = await records_of(settings, RANKINGS)
    assert [branch.objective_status for branch in ranking.branches] == ["pass"]  # type: ignore[attr-defined]


async def test_a_branch_too_large_to_be_written_stops_nobody(settings: Settings, tmp_path: Path) -> None:
    """Ordinary calls that together make a record larger than a topic takes: that rollout is given up, also after a restart."""
    await ensure_topics(settings)
    chance, reader = random.Random(3), LineReader()
    large = [
        {
            "event": "tool_call",
            "data": {"toolName": "write", "callId": f"c{n}", "args": {"content": chance.randbytes(500_000).hex()}},
        }
        for n in range(10)
    ]
    answer = {"event": "final_answer", "data": {"answer": "yes"}}
    lines = [
        {"type": "rollout", "rollout_id": name, "task": "t", "branches": 1, "required": []}
        for name in ("large", "small")
    ]
    lines += [{"type": "event", "rollout_id": "large", "branch_index": 0, "event": event} for event in (*large, answer)]
    lines += [{"type": "event", "rollout_id": "small", "branch_index": 0, "event": answer}]
    async with FactWriter(settings, "test") as writer:
        for line in lines:
            for fact in reader.read_object(line):
                await writer.write(fact)
    with Worker(settings, tmp_path / "worker.log") as worker:
        await until_closed(settings, {"small"})

        async def given_up() -> bool:
            return b'"event": "broken"' in (tmp_path / "worker.log").read_bytes()

        await until(given_up, "the large one is given up")
        assert worker.stop()[0] == 0
    with Worker(settings, tmp_path / "again.log") as worker:
        await worker.ready()
        await asyncio.sleep(2)
        assert worker.stop()[0] == 0
    assert {ranking.rollout_id for ranking in await records_of(settings, RANKINGS)} == {"small"}  # type: ignore[attr-defined]
