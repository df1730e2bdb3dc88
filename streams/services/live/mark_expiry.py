"""Expiry of marks: long after the rollout closed, by the times of the log, and never while its facts could be read again."""

from collections import deque

from streams.cluster.config import Settings
from streams.cluster.connections import partition_of
from streams.log.topics import FACTS
from streams.services.live.loop import Loop
from streams.services.live.marks import read_mark


class MarkExpiry:
    """Drops marks in the order in which their rollouts closed. No wall clock: in an idle log no mark expires."""

    def __init__(self, loop: Loop, settings: Settings) -> None:
        self._loop = loop
        self._settings = settings
        self._marks: dict[int, deque[tuple[int, str]]] | None = None

    def remember(self, partition: int, rollout_id: str, row: bytes) -> None:
        """Add a new mark."""
        if self._marks is not None:
            self._marks.setdefault(partition, deque()).append((read_mark(row).closed_at, rollout_id))

    async def forget(self) -> None:
        """Drop old marks, once the commits have passed everything that their closings had read."""
        if self._marks is None:
            self._marks = self._all()
        for partition, marks in self._marks.items():
            horizon = self._loop.stream_time(partition) - self._settings.worker.keep_marks_ms
            while marks and marks[0][0] < horizon and self._has_passed(partition, marks[0][1]):
                self._loop.marks.drop(partition, marks.popleft()[1])
        await self._loop.marks.settle()

    def _all(self) -> dict[int, deque[tuple[int, str]]]:
        by_partition: dict[int, list[tuple[int, str]]] = {}
        for rollout_id, row in self._loop.marks.rows().items():
            partition = partition_of(rollout_id, self._settings.partitions)
            by_partition.setdefault(partition, []).append((read_mark(row).closed_at, rollout_id))
        return {partition: deque(sorted(marks)) for partition, marks in by_partition.items()}

    def _has_passed(self, partition: int, rollout_id: str) -> bool:
        row = self._loop.marks.rows().get(rollout_id)
        if row is None:
            return True
        read_to = read_mark(row).read_to
        return all(
            self._loop.committed(self._settings.prefix + topic.name, partition) >= read_to[topic.name]
            for topic in FACTS
        )
