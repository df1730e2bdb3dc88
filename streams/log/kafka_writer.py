"""Records to Kafka: keyed by rollout, in the partition that everything about it meets in, acknowledged by all replicas."""

import asyncio
from types import TracebackType
from typing import Any, Self

from schemas.base import Record
from streams.cluster.config import Settings
from streams.cluster.connections import registry_of, resolve, start_producer
from streams.log.envelope import Envelope
from streams.log.outgoing_record import Outgoing
from streams.log.topic_setup import ensure_topics
from streams.log.wire import Codec

MAX_UNACKED = 2000
"""Unacknowledged writes before the next one waits."""


async def send(producer: Any, record: Outgoing, at: int | None = None) -> asyncio.Future[Any]:
    """Hand a record to a producer; the future has its place in the log once the broker acknowledged it.

    `at` is its time, where the topic keeps the times of its records.
    """
    sent: asyncio.Future[Any] = await producer.send(
        record.topic, record.value, key=record.key, partition=record.partition, timestamp_ms=at, headers=record.headers
    )
    return sent


class FactWriter:
    """Writes facts and derived records; `flush` waits until the broker has all of them."""

    def __init__(self, settings: Settings, source: str) -> None:
        self.settings = resolve(settings)
        self._registry = registry_of(self.settings)
        self.codec = Codec(self._registry, prefix=self.settings.prefix)
        self._envelope = Envelope(self.codec, source, self.settings.partitions, self.settings.prefix)
        self._producer: Any = None
        self._unacked: list[asyncio.Future[Any]] = []

    async def __aenter__(self) -> Self:
        await ensure_topics(self.settings)
        await self.codec.register()
        self._producer = await start_producer(self.settings)
        return self

    async def write(
        self, record: Record, body: bytes | None = None, emission: int | None = None, *, redacted: bool = False
    ) -> None:
        """Write one record, as `Envelope.outgoing` addresses it. Raises TooLargeError when it is over its topic's limit."""
        outgoing = self._envelope.outgoing(record, body, emission, redacted=redacted)
        self._unacked.append(await send(self._producer, outgoing))
        if len(self._unacked) >= MAX_UNACKED:
            await self.flush()

    async def append(self, record: Record) -> None:
        """Write one record and wait until the broker has it. Raises TooLargeError when it is over its topic's limit."""
        await self.put(self._envelope.outgoing(record))

    async def put(self, record: Outgoing) -> None:
        """Write a record that is addressed already and wait until the broker has it."""
        await (await send(self._producer, record))

    async def flush(self) -> None:
        """Wait until the broker has everything."""
        waiting, self._unacked = self._unacked, []
        await asyncio.gather(*waiting)

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self._producer.stop()
            if self._registry is not None:
                await self._registry.close()
