"""A judge worker as a process of its own, requests put into the log, and a look at the votes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition

from schemas.closures import Closure, RolloutClosed
from schemas.emission import JudgeConfig
from schemas.judging import JudgeRequest, JudgeVote
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_admin, start_consumer, start_producer
from streams.log.topic_setup import ensure_topics
from streams.log.topics import CLOSURES, JUDGE_REQUESTS, JUDGE_VOTES
from streams.services.judge.judge_worker import run_judge_worker
from tests.live import Worker, codec_of, records_of, until

ANTHROPIC = {
    "BRAID_EMISSION__JUDGE__KIND": "anthropic",
    "BRAID_EMISSION__JUDGE__MODEL": "judge-model",
    "ANTHROPIC_API_KEY": "test",
}


@asynccontextmanager
async def judging(
    settings: Settings, judge: JudgeConfig | None = None, **changes: Any
) -> AsyncIterator[asyncio.Task[None]]:
    """A judge worker in this process; it is told to stop at the end, and what made it fail is raised."""
    section = settings.judge.model_copy(update=changes)
    chosen = judge or JudgeConfig(kind="anthropic", model="judge-model")
    emission = settings.emission.model_copy(update={"judge": chosen})
    stop = asyncio.Event()
    task = asyncio.create_task(
        run_judge_worker(settings.model_copy(update={"judge": section, "emission": emission}), stop=stop)
    )
    try:
        yield task
    finally:
        stop.set()
        await task


class JudgeProcess(Worker):
    """`braid judge worker`."""

    words = ("judge", "worker")


async def put(settings: Settings, records: Sequence[JudgeRequest | RolloutClosed | bytes]) -> None:
    """Write requests, closings, or bytes that are no request."""
    await ensure_topics(settings)
    codec = await codec_of(settings)
    producer = await start_producer(settings)
    try:
        for record in records:
            key = "raw" if isinstance(record, bytes) else record.rollout_id
            closing = isinstance(record, RolloutClosed)
            wrapped = Closure(closed=record) if isinstance(record, RolloutClosed) else record
            await producer.send_and_wait(
                settings.prefix + (CLOSURES if closing else JUDGE_REQUESTS).name,
                wrapped if isinstance(wrapped, bytes) else codec.encode(wrapped),
                key=key.encode(),
                partition=partition_of(key, settings.partitions),
            )
    finally:
        await producer.stop()
        await asyncio.sleep(0)


async def votes_of(settings: Settings) -> list[JudgeVote]:
    return [vote for vote in await records_of(settings, JUDGE_VOTES) if isinstance(vote, JudgeVote)]


async def until_votes(settings: Settings, count: int) -> list[JudgeVote]:
    """Wait for so many votes; only the ends of the partitions are asked for."""
    name = settings.prefix + JUDGE_VOTES.name
    places = [TopicPartition(name, partition) for partition in range(settings.partitions)]
    consumer = await start_consumer(settings)
    consumer.assign(places)

    async def enough() -> bool:
        return sum((await consumer.end_offsets(places)).values()) >= count

    try:
        await until(enough, f"{count} votes")
    finally:
        await consumer.stop()
    return await votes_of(settings)


async def committed(settings: Settings, at_least: int = 0) -> int:
    """How many requests the group has finished with, over all partitions; waits until it is as many as said."""
    admin = await start_admin(settings)
    done = 0

    async def enough() -> bool:
        nonlocal done
        found = await admin.list_consumer_group_offsets(settings.judge_group)
        done = sum(max(0, each.offset) for each in found.values())
        return done >= at_least

    try:
        await until(enough, f"{at_least} requests committed")
    finally:
        await admin.close()
    return done
