"""Refused facts, on their way to the dead letters: the current record, or one that was read before and turned out not
to count.

Of the latter only the place is kept; its original is fetched from the log when the letter is written.
"""

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition

from agents.rollouts.rollout import Complaint
from streams.cluster.config import Settings
from streams.cluster.connections import start_consumer
from streams.log.letters import NOT_COUNTED, Letter, bury, letter_of
from streams.log.record import LogRecord, consumed
from streams.services.live.loop import Arrived, Loop
from streams.services.live.worker_metrics import WorkerMetrics

log = structlog.get_logger()


class Refused:
    """Dead letters that are still to be written."""

    def __init__(self, loop: Loop, settings: Settings, metrics: WorkerMetrics) -> None:
        self._loop = loop
        self._settings = settings
        self._metrics = metrics
        self._letters: list[Letter] = []
        self._strays: list[Complaint] = []

    def add(self, record: Arrived, reason: str, message: str, error: str = NOT_COUNTED) -> None:
        """Refuse the current record."""
        stored = LogRecord(record.offset, record.at, record.key, record.value, record.headers)
        self._letters.append(letter_of(record.topic, record.partition, stored, reason, message, error))

    def add_stray(self, complaint: Complaint) -> None:
        """Refuse a record that was read before."""
        self._strays.append(complaint)

    def clear(self) -> None:
        """Drop unwritten letters, because their records are read again."""
        self._letters, self._strays = [], []

    async def write(self) -> None:
        """Write a letter for each of them."""
        strays, self._strays = self._strays, []
        letters, self._letters = [*self._letters, *await self._fetched(strays)], []
        for letter in letters:
            self._metrics.letters.labels(letter.reason).inc()
            await bury(letter, self._settings.prefix, self._loop.send)

    async def _fetched(self, complaints: list[Complaint]) -> list[Letter]:
        if not complaints:
            return []
        consumer = await start_consumer(self._settings)
        try:
            places = sorted({TopicPartition(*complaint.ref[:2]) for complaint in complaints})
            begins = await consumer.beginning_offsets(places)
            found = [await _fetch(consumer, complaint, begins) for complaint in complaints]
        finally:
            await consumer.stop()
        return [letter for letter in found if letter is not None]


async def _fetch(consumer: AIOKafkaConsumer, complaint: Complaint, begins: dict[TopicPartition, int]) -> Letter | None:
    """The letter of a record in the log; None if the log no longer has it."""
    topic, partition, offset = complaint.ref
    place = TopicPartition(topic, partition)
    if offset < begins[place]:  # it would never be sent
        log.warning("no dead letter: the original is gone", origin=complaint.ref, reason=complaint.reason)
        return None
    consumer.assign([place])
    consumer.seek(place, offset)
    return letter_of(topic, partition, consumed(await consumer.getone(place)), complaint.reason, complaint.message)
