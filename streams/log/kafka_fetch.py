"""Partitions of a cluster, fetched from the brokers that lead them, as records of the log.

aiokafka's consumer follows assignments, and makes an object of eleven fields of each record. A bounded read goes from one offset
to another, and needs five of them: it sends its own fetch requests, in three fifths of the time.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaError,
    NodeNotReadyError,
    NoError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record import MemoryRecords

from schemas.errors import BraidError
from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, client_options, reach
from streams.log.record import LogRecord, Span

READ_BYTES = 2 * 1024 * 1024
"""Bytes of one request, as stored by the broker; a larger record is still returned, alone."""
BLOCK_BYTES = 512 * 1024
BLOCK_RECORDS = 2000
RECORD_BYTES = 32 * 1024
"""Asked for each record of a short span: a few records by offset do not cost two megabytes."""
WAIT_MS = 20
"""How long a broker may hold a request without data: other requests wait behind it."""
AGAIN_S = 0.2
STALL_S = 30.0
"""A bounded read that receives no data for this long has lost its broker."""


Beginning = Callable[[TopicPartition], Awaitable[int]]
"""Asks for the first offset of a partition that lacks the requested one: earlier records are lost."""


class Fetching:
    """Reads partitions of a cluster."""

    def __init__(self, settings: Settings, place: str, beginning: Beginning) -> None:
        self._settings = settings
        self._place = place
        """For people."""
        self._beginning = beginning
        self._client = AIOKafkaClient(**client_options(settings))

    async def start(self) -> None:
        """Reach the cluster. Raises ClusterError."""
        await reach(self._client.bootstrap, self._client.close, self._settings)

    async def stop(self) -> None:
        """Leave the cluster."""
        await self._client.close()

    async def topics(self) -> dict[str, int]:
        """The partition count of each topic. All topics: asking for one by name can create it on some clusters."""
        known = await self._client.fetch_all_metadata()
        names = known.topics(exclude_internal_topics=False)
        return {name: len(known.partitions_for_topic(name) or ()) for name in names}

    async def blocks(self, name: str, partition: int, span: Span) -> AsyncGenerator[list[LogRecord], None]:
        """The records of part of a partition, in order, some at a time; more are asked for while these are used."""
        place, position = TopicPartition(name, partition), span.start
        if position >= span.end:
            return
        size = min(READ_BYTES, RECORD_BYTES * (span.end - span.start))
        asked = asyncio.create_task(self._batches(place, position, size))
        try:
            while position < span.end:
                first, batches = await asked
                position = batches[-1].next_offset
                if position < span.end:
                    asked = asyncio.create_task(self._batches(place, position, size))
                    await asyncio.sleep(0)  # it is on its way before any computation
                for block in _unpacked(batches, place):
                    inside = block
                    if block[0].offset < first or block[-1].offset >= span.end:
                        inside = [record for record in block if first <= record.offset < span.end]
                    if inside:
                        yield inside
        finally:
            asked.cancel()
            with suppress(asyncio.CancelledError, BraidError):
                await asked

    async def _batches(self, place: TopicPartition, position: int, size: int) -> tuple[int, list[Any]]:
        """The batches from an offset on, one at least, and that offset. Raises ClusterError if none arrive for too
        long.
        """
        patience = time.monotonic() + STALL_S
        why = "nothing came"
        while time.monotonic() < patience:
            try:
                if found := await self._asked(place, position, size):
                    return position, found
            except OffsetOutOfRangeError:  # its beginning was deleted in the meantime
                position = max(position, await self._beginning(place))
                why = "it has nothing there"
            except TopicAuthorizationFailedError as error:
                raise ClusterError(f"{self._place}: {place.topic}: {error}; check the [security] settings") from None
            except KafkaError as error:
                why = str(error)
                self._client.force_metadata_update()
            await asyncio.sleep(AGAIN_S)
        raise ClusterError(
            f"{self._place}: {place.topic}/{place.partition} has not answered for {STALL_S:.0f} s at offset {position} ({why}); "
            "is the broker well? (`braid doctor`)"
        )

    async def _asked(self, place: TopicPartition, position: int, size: int) -> list[Any]:
        """One request for approximately so many bytes. Raises KafkaError."""
        leader = self._client.cluster.leader_for_partition(place)
        if leader is None or leader == -1:
            await self._client.add_topic(place.topic)
            leader = self._client.cluster.leader_for_partition(place)
        if leader is None or leader == -1:
            raise NodeNotReadyError("no broker leads it")
        wanted = [(place.topic, [(place.partition, position, size)])]
        answer = await self._client.send(leader, FetchRequest(WAIT_MS, 1, size, 0, wanted))
        ((_, ((_, code, *_, data),)),) = answer.topics
        error = for_code(code)
        if error is not NoError:
            raise error
        records, batches = MemoryRecords(data), []
        while records.has_next():
            batches.append(records.next_batch())
        return batches


def _unpacked(batches: list[Any], place: TopicPartition) -> Iterator[list[LogRecord]]:
    """Their records, some at a time. Raises ClusterError for damaged batches."""
    block: list[LogRecord] = []
    size = 0
    for batch in batches:
        if not batch.validate_crc():
            raise ClusterError(
                f"{place.topic}/{place.partition}: the batch at offset {batch.base_offset} is damaged on the broker"
            )
        if batch.is_control_batch:
            continue
        for record in batch:
            value = record.value
            block.append(LogRecord(record.offset, record.timestamp, record.key, value, tuple(record.headers)))
            size += 0 if value is None else len(value)
        if size >= BLOCK_BYTES or len(block) >= BLOCK_RECORDS:
            yield block
            block, size = [], 0
    if block:
        yield block
