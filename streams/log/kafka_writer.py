"""Records to Kafka: keyed by rollout, in the partition that everything about it meets in, acknowledged by all replicas."""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Self

from agents.facts.fact import rollout_of
from schemas.base import Record
from schemas.errors import BraidError
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, registry_of, resolve, start_producer
from streams.log.headers import cloud_event
from streams.log.topic_setup import ensure_topics
from streams.log.topics import BY_RECORD
from streams.log.wire import Codec

MAX_UNACKED = 2000
"""Writes under way before the next one waits."""


class TooLargeError(BraidError):
    """A record over its topic's limit."""


class FactWriter:
    """Writes facts and what follows from them; `flush` waits until the broker has all of them."""

    def __init__(self, settings: Settings, source: str) -> None:
        self.settings = resolve(settings)
        self._source = source
        self._registry = registry_of(self.settings)
        self._codec = Codec(self._registry, prefix=self.settings.prefix)
        self._producer: Any = None
        self._unacked: list[Awaitable[Any]] = []
        self.written = 0

    async def __aenter__(self) -> Self:
        await ensure_topics(self.settings)
        await self._codec.register()
        self._producer = await start_producer(self.settings)
        return self

    async def write(
        self, record: Record, body: bytes | None = None, emission: int | None = None, *, redacted: bool = False
    ) -> None:
        """Write one record. Raises TooLargeError when it is over its topic's limit.

        `body` is its Avro body where it is known, `emission` the emission version of what follows from a rollout.
        """
        self._unacked.append(await self._send(record, body, emission, redacted=redacted))
        if len(self._unacked) >= MAX_UNACKED:
            await self.flush()

    async def append(self, record: Record) -> None:
        """Write one record and wait until the broker has it: the log that something below us writes to."""
        await (await self._send(record))

    async def _send(
        self, record: Record, body: bytes | None = None, emission: int | None = None, *, redacted: bool = False
    ) -> Awaitable[Any]:
        topic = BY_RECORD[type(record)]
        value = self._codec.encode(record, body, emission)
        if len(value) > topic.max_bytes:
            raise TooLargeError(f"{len(value)} bytes; {topic.name} takes {topic.max_bytes}")
        rollout_id = rollout_of(record)
        sent: Awaitable[Any] = await self._producer.send(
            self.settings.prefix + topic.name,
            value,
            key=rollout_id.encode(),
            partition=partition_of(rollout_id, self.settings.partitions),
            headers=cloud_event(record, self._source, redacted=redacted),
        )
        self.written += 1
        return sent

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
