"""A gateway in a thread, and a look at what it wrote."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvloop
from aiokafka import TopicPartition

from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, registry_of, start_consumer
from streams.log.topics import AGENT_EVENTS, FACTS, Topic
from streams.log.wire import Codec
from streams.services.gateway.app import create_app
from streams.services.web.server import Server, address_of, listen


class Written(NamedTuple):
    """A record in the log."""

    record: Any
    partition: int
    offset: int
    headers: dict[str, str]


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """Run a gateway on a free port; gives its base URL."""
    bound = listen("127.0.0.1", 0)
    started = threading.Event()
    server = Server(create_app(settings), started.set)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve([bound]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield address_of(bound).url
    finally:
        server.end()
        thread.join(30)


def with_gateway(settings: Settings, **changes: Any) -> Settings:
    """The settings with another gateway section."""
    return settings.model_copy(update={"gateway": settings.gateway.model_copy(update=changes)})


def written(settings: Settings, rollout_id: str, topic: Topic = AGENT_EVENTS) -> list[Written]:
    """The records of a rollout in a topic, read from the beginning to the end of now."""
    return asyncio.run(_written(settings, rollout_id, (topic,)))


def everything(settings: Settings, rollout_id: str) -> list[Any]:
    """The records of a rollout in all topics that are written from outside."""
    return [found.record for found in asyncio.run(_written(settings, rollout_id, FACTS))]


def seqs(settings: Settings, rollout_id: str) -> list[int]:
    """The seqs of the events that the log holds of a rollout, in its order."""
    slices = [found.record for found in written(settings, rollout_id)]
    return [piece.first_seq + place for piece in slices for place in range(len(piece.events))]


async def _written(settings: Settings, rollout_id: str, topics: Sequence[Topic]) -> list[Written]:
    number = partition_of(rollout_id, settings.partitions)
    places = {TopicPartition(settings.prefix + topic.name, number): topic for topic in topics}
    registry = registry_of(settings)
    codec = Codec(registry, prefix=settings.prefix)
    consumer = await start_consumer(settings, max_partition_fetch_bytes=8 * 1024 * 1024)
    found: list[Written] = []
    try:
        consumer.assign(list(places))
        ends = await consumer.end_offsets(list(places))
        await consumer.seek_to_beginning(*places)
        for place, topic in places.items():
            while await consumer.position(place) < ends[place]:
                for message in (await consumer.getmany(place, timeout_ms=1000)).get(place, []):
                    if message.key != rollout_id.encode():
                        continue
                    await codec.prepare([message.value])
                    headers = {name: value.decode() for name, value in message.headers}
                    found.append(
                        Written(codec.decode(topic, message.value), message.partition, message.offset, headers)
                    )
    finally:
        await consumer.stop()
        if registry is not None:
            await registry.close()
    return found
