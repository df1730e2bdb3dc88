"""Partitions fetched without a consumer: the same records that one would give, whatever happens to the broker meanwhile."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete

from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, start_admin, start_producer
from streams.log import kafka_fetch as fetching
from streams.log.kafka_fetch import Fetching
from streams.log.kafka_reader import KafkaReader
from streams.log.record import LogRecord, Span
from streams.log.topics import Topic
from tests.live import read_all

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


async def nothing_gone(_place: TopicPartition) -> int:
    return 0


@asynccontextmanager
async def reader(settings: Settings) -> AsyncIterator[Fetching]:
    made = Fetching(settings, "here", nothing_gone)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def topic(settings: Settings, name: str, **config: str) -> str:
    admin = await start_admin(settings)
    try:
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs=config)])
    finally:
        await admin.close()
    return name


async def fill(settings: Settings, name: str, count: int) -> None:
    """Records of all kinds: without a key, without a value, with headers, in many batches."""
    producer = await start_producer(settings, max_batch_size=4096)
    try:
        for number in range(count):
            key = None if number % 7 == 0 else b"key-%d" % number
            value = None if number % 11 == 1 and key else os.urandom(number % 300)
            headers = [("a", b"1"), ("b", b"%d" % number)] if number % 3 == 0 else []
            await producer.send(name, value, key=key, headers=headers, partition=0)
        await producer.flush()
    finally:
        await producer.stop()


async def read(fetched: Fetching, name: str, span: Span) -> list[LogRecord]:
    return [record async for block in fetched.blocks(name, 0, span) for record in block]


async def test_a_span_is_what_a_consumer_reads_of_it(settings: Settings) -> None:
    name = await topic(settings, f"{settings.prefix}span")
    await fill(settings, name, 3000)
    expected = [
        LogRecord(each.offset, each.at, each.key, each.value, each.headers)
        for each in await read_all(settings.model_copy(update={"partitions": 1}), name)
    ]
    assert len(expected) == 3000
    async with reader(settings) as fetched:
        for start, end in ((0, 3000), (1, 2), (17, 2999), (2999, 3000), (5, 5)):
            assert await read(fetched, name, Span(start, end)) == expected[start:end]
        blocks = [len(block) async for block in fetched.blocks(name, 0, Span(0, 3000))]
    assert max(blocks) < fetching.BLOCK_RECORDS + 500


async def test_a_record_larger_than_a_request_comes_alone(settings: Settings) -> None:
    large = os.urandom(fetching.READ_BYTES + 1000)
    name = await topic(settings, f"{settings.prefix}large", **{"max.message.bytes": str(len(large) + 10_000)})
    producer = await start_producer(settings)
    try:
        for value in (b"before", large, b"after"):
            await producer.send_and_wait(name, value, partition=0)
    finally:
        await producer.stop()
    async with reader(settings) as fetched:
        assert [record.value for record in await read(fetched, name, Span(0, 3))] == [b"before", large, b"after"]


async def test_what_was_removed_meanwhile_is_passed_over(settings: Settings) -> None:
    """Retention may remove the beginning after a replay has looked where it is. The log says so, and holes are named by it."""
    name = await topic(settings, f"{settings.prefix}facts")
    await fill(settings, name, 40)
    admin = await start_admin(settings)
    try:
        await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(before_offset=25)})
    finally:
        await admin.close()

    topic_of = Topic(name.removeprefix(settings.prefix), None, "fact", "")
    async with KafkaReader(settings) as log:
        found = [record.offset async for block in log.blocks(topic_of, 0, Span(3, 40)) for record in block]
    assert found == list(range(25, 40))
    assert log.damaged == {topic_of.name: {0: "has come to begin at offset 25 while it was read"}}


async def test_a_partition_that_does_not_answer_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "STALL_S", 1.0)
    name = await topic(settings, f"{settings.prefix}short")
    await fill(settings, name, 3)
    async with reader(settings) as fetched:
        with pytest.raises(ClusterError, match=rf"here: {name}/0 has not answered .* at offset 3 \(nothing came\)"):
            await read(fetched, name, Span(0, 5))
        with pytest.raises(
            ClusterError, match=rf"{settings.prefix}none/0 .* \(NodeNotReadyError: no broker leads it\)"
        ):
            await read(fetched, f"{settings.prefix}none", Span(0, 1))


@pytest.mark.long  # two starts of a Kafka of its own
async def test_reading_goes_on_when_the_broker_was_killed_and_is_back(tmp_path: Path) -> None:
    endpoint = await asyncio.to_thread(broker.start, tmp_path / "broker", places.cache_dir(), registry=False)
    try:
        settings = Settings(kafka=endpoint.bootstrap, registry="")
        name = await topic(settings, "fetching.killed")
        await fill(settings, name, 30_000)
        offsets = []
        async with reader(settings) as fetched:
            async for block in fetched.blocks(name, 0, Span(0, 30_000)):
                if not offsets:
                    await asyncio.to_thread(broker.kill_kafka, tmp_path / "broker")
                    await asyncio.to_thread(broker.start, tmp_path / "broker", places.cache_dir(), registry=False)
                offsets += [record.offset for record in block]
        assert offsets == list(range(30_000))
    finally:
        await asyncio.to_thread(broker.stop, tmp_path / "broker", wipe=True)
