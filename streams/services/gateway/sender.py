"""Records to the broker: one producer for all requests, and whether it can be reached.

The gateway also starts without a broker, and keeps trying to connect: until then, and whenever acknowledgements are
missing, requests are answered with 503. Sending again is always fine, because the fold ignores repetitions.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import structlog
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from agents.facts.fact import Fact
from schemas.base import Record
from schemas.captures import Capture
from schemas.errors import BraidError, SchemaError
from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, registry_of, start_admin, start_producer
from streams.cluster.schema_registry import RegistryUnreachableError
from streams.log.envelope import Envelope
from streams.log.kafka_writer import send
from streams.log.outgoing_record import Outgoing
from streams.log.topic_setup import ensure_topics
from streams.log.wire import Codec
from streams.services.gateway.gateway_metrics import GatewayMetrics

ACKNOWLEDGE_S = 10.0
"""A broker that needs longer than this counts as unavailable for waiting callers."""

START_S = 10.0
"""How long the gateway waits for its broker before it listens without one."""

BATCH_BYTES = 1024 * 1024
"""Bytes of records of a partition that are sent together. The Kafka client's default of 16 KiB sent the captures of a
request one at a time, at 7 ms each.
"""

COMPRESSION = "snappy"
"""Bodies of spans come by the megabyte: 720 MB/s, and a quarter of their bytes; the client's lz4 (level 9) does 18 MB/s, and a fifth."""

STOP_S = 5.0
"""How long the last records may take when the gateway ends; those of answered requests are written by then."""

RETRY_S = (0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts to reach the broker; the last one repeats."""

log = structlog.get_logger()


class BrokerAwayError(BraidError):
    """The broker cannot be reached, or does not acknowledge."""


class Sender:
    """The way to the log."""

    def __init__(self, settings: Settings, metrics: GatewayMetrics, source: str = "gateway") -> None:
        self._settings = settings
        self._metrics = metrics
        self._registry = registry_of(settings)
        self._codec = Codec(self._registry, prefix=settings.prefix)
        self._envelope = Envelope(self._codec, source, settings.partitions, settings.prefix)
        self._producer: Any = None
        self._connecting: asyncio.Task[None] | None = None
        """Connects, or checks whether a silent broker is back."""
        self._is_silent = False
        self._tried = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self.trouble = f"the {source} is still connecting to Kafka"
        """Why the broker cannot be reached, for people."""

    @property
    def is_ready(self) -> bool:
        """Whether records can be sent."""
        return self._producer is not None and not self._is_silent

    async def start(self) -> None:
        """Begin to connect; returns when the broker answered or is found to be away, after a while in any case."""
        self._begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await self._tried.wait()

    def _begin(self) -> None:
        self._connecting = asyncio.create_task(self._connect())

    async def stop(self) -> None:
        """Close everything."""
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        if self._producer is not None:
            self._leave(self._producer)
            self._producer = None
        if self._leaving:
            await asyncio.wait(self._leaving)
        if self._registry is not None:
            await self._registry.close()

    def encode(self, fact: Record) -> bytes:
        """The wire form of a record."""
        return self._codec.encode(fact)

    def outgoing(self, fact: Fact | Capture, traceparent: str | None) -> Outgoing:
        """Address a record."""
        return self._envelope.outgoing(fact, traceparent=traceparent)

    async def send(self, record: Outgoing) -> asyncio.Future[Any]:
        """Hand a record to the producer; the future has its place in the log once the broker acknowledged it."""
        producer = self._producer
        if not self.is_ready:
            raise BrokerAwayError(self.trouble)
        try:
            async with asyncio.timeout(ACKNOWLEDGE_S):
                acknowledged = await send(producer, record)
        except TimeoutError:
            raise self._silent() from None
        except KafkaError as error:
            self._lost(producer, error)
            raise BrokerAwayError(f"Kafka at {self._settings.kafka}: {type(error).__name__}") from None
        acknowledged.add_done_callback(_looked_at)
        return acknowledged

    async def acknowledge(self, records: Sequence[asyncio.Future[Any]]) -> None:
        """Wait until the broker has answered for every record. Raises BrokerAwayError."""
        waiting = [record for record in records if not record.done()]
        if waiting:
            with self._metrics.acknowledged.time():
                _, missing = await asyncio.wait(waiting, timeout=ACKNOWLEDGE_S)
            if missing:
                raise self._silent()
        for record in records:
            error = record.exception()
            if error is not None and not isinstance(error, MessageSizeTooLargeError):
                raise BrokerAwayError(f"Kafka at {self._settings.kafka} did not take a record: {type(error).__name__}")

    def _silent(self) -> BrokerAwayError:
        """Other requests do not wait for a broker that does not answer: until it is back, requests are refused at once."""
        error = BrokerAwayError(f"Kafka at {self._settings.kafka} did not acknowledge in {ACKNOWLEDGE_S:.0f} s")
        if not self._is_silent and self._producer is not None:
            self._is_silent = True
            self._metrics.ready.set(0)
            self.trouble = str(error)
            log.warning("broker silent", reason=self.trouble)
            self._connecting = asyncio.create_task(self._look_for())
        return error

    async def _look_for(self) -> None:
        """Wait until the broker answers again; the producer itself continues by then."""
        for attempt in count():
            await asyncio.sleep(_pause(attempt))
            try:
                admin = await start_admin(self._settings)
                await admin.close()
                break
            except (ClusterError, KafkaError, OSError) as error:
                self.trouble = str(error) or type(error).__name__
        self._is_silent = False
        self._metrics.ready.set(1)
        log.info("broker back", kafka=self._settings.kafka)

    async def _connect(self) -> None:
        for attempt in count():
            try:
                await ensure_topics(self._settings)
                await self._codec.register()
                self._producer = await start_producer(
                    self._settings, max_batch_size=BATCH_BYTES, compression_type=COMPRESSION
                )
                break
            except (ClusterError, RegistryUnreachableError, SchemaError, KafkaError, OSError) as error:
                self.trouble = str(error) or type(error).__name__
                self._tried.set()
                log.warning("broker away", reason=self.trouble)
                await asyncio.sleep(_pause(attempt))
        self.trouble = ""
        self._tried.set()
        self._metrics.ready.set(1)
        log.info(
            "connected",
            kafka=self._settings.kafka,
            registry=self._settings.registry or None,
            prefix=self._settings.prefix,
        )

    def _lost(self, producer: Any, error: KafkaError) -> None:
        """A producer that refuses records has failed permanently (its sequence numbers are lost): a new one replaces
        it.
        """
        if producer is not self._producer:
            return
        self.trouble = f"Kafka at {self._settings.kafka}: {type(error).__name__}; connecting again"
        log.warning("producer lost", reason=self.trouble)
        self._producer = None
        self._is_silent = False
        self._metrics.ready.set(0)
        self._leave(producer)
        if self._connecting is not None:
            self._connecting.cancel()
        self._begin()

    def _leave(self, producer: Any) -> None:
        task = asyncio.create_task(_stopped(producer))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _pause(attempt: int) -> float:
    return RETRY_S[min(attempt, len(RETRY_S) - 1)]


async def _stopped(producer: Any) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await producer.stop()
    except TimeoutError:  # it waits for a broker that is away
        await producer.client.close()
    except KafkaError as error:
        log.warning("producer stopped badly", reason=type(error).__name__)


def _looked_at(record: asyncio.Future[Any]) -> None:
    """Retrieve the exception, so that asyncio does not warn when the client has disconnected."""
    if not record.cancelled():
        record.exception()
