"""Read a whole topic of the benchmark's cluster, changelogs included."""

from typing import Any

from aiokafka import TopicPartition

from streams.cluster.config import Settings
from streams.cluster.connections import start_consumer


async def read_all(settings: Settings, name: str) -> list[Any]:
    """Every record of a topic up to its end now, as aiokafka's consumer gives them."""
    places = [TopicPartition(name, partition) for partition in range(settings.partitions)]
    found: list[Any] = []
    consumer = await start_consumer(settings)
    try:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        while waiting := [place for place in places if await consumer.position(place) < ends[place]]:
            for records in (await consumer.getmany(*waiting, timeout_ms=200, max_records=5000)).values():
                found += records
    finally:
        await consumer.stop()
    return found
