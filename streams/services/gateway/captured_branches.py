"""The branches that are captured: their events are the fold's alone, and slices of agents are refused.

This covers every attempt of such a branch: otherwise a slice with a higher attempt would replace the captured one. The
gateway knows its own captures, and follows the topic for those of proxies and other gateways.
"""

import asyncio
import re
import time
from collections import OrderedDict
from contextlib import suppress

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, start_consumer
from streams.log.topics import CAPTURES

LOOK_BACK_MS = 24 * 3_600_000
"""A rollout is open for a day at most, unless its opening sets another time."""

REMEMBERED = 100_000
"""Branches; the oldest are forgotten."""

FETCH_BYTES = 1024 * 1024
"""Of a partition at once: bodies of spans are passed over. A larger batch is still returned."""

AGAIN_S = 2.0

_PLACE = re.compile(r"/b(\d+)/a\d+/c/")

log = structlog.get_logger()


class CapturedBranches:
    """Branches that have captures."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: OrderedDict[tuple[str, int], None] = OrderedDict()

    def add(self, rollout_id: str, branch_index: int) -> None:
        """Note a captured branch."""
        self._known[rollout_id, branch_index] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def has(self, rollout_id: str, branch_index: int) -> bool:
        """Whether a branch is captured."""
        return (rollout_id, branch_index) in self._known

    async def follow(self) -> None:
        """Follow the topic, from a day ago on. A broker that is away is tried again."""
        since = int(time.time() * 1000) - LOOK_BACK_MS
        while True:
            with suppress(ClusterError, KafkaError, OSError):
                await self._follow(since)
            await asyncio.sleep(AGAIN_S)

    async def _follow(self, since: int) -> None:
        consumer = await start_consumer(self._settings, max_partition_fetch_bytes=FETCH_BYTES)
        try:
            topic = self._settings.prefix + CAPTURES.name
            places = [TopicPartition(topic, number) for number in range(self._settings.partitions)]
            consumer.assign(places)
            first = await consumer.offsets_for_times(dict.fromkeys(places, since))
            for place, found in first.items():
                if found is None:
                    await consumer.seek_to_end(place)
                else:
                    consumer.seek(place, found.offset)
            while True:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        self._note(record.key, dict(record.headers))
        finally:
            await consumer.stop()

    def _note(self, key: bytes | None, headers: dict[str, bytes]) -> None:
        """Read a record's place from its id, so that no decoding is needed."""
        rollout_id = (key or b"").decode(errors="replace")
        name = headers.get("ce_id", b"").decode(errors="replace")
        place = _PLACE.match(name, len(rollout_id)) if name.startswith(rollout_id) else None
        if place is not None:
            self.add(rollout_id, int(place[1]))
