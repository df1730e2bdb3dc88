"""When open rollouts are checked again: at a time of the clock, or when their partition has been read up to a time.

Entries of the heaps are never removed early. A deadline that a rollout no longer waits for is skipped when it is due.
"""

import heapq
from collections.abc import Iterator, Mapping

from streams.services.live.open_rollout import OpenRollout

Entry = tuple[int, str]
"""A time and a rollout's id."""


class Deadlines:
    """The deadlines of the rollouts in `open_`, the earliest first."""

    def __init__(self, open_: Mapping[str, OpenRollout]) -> None:
        self._open = open_
        self._due: list[Entry] = []
        self._unread: dict[int, list[Entry]] = {}

    def clear(self) -> None:
        """Forget all of them."""
        self._due.clear()
        self._unread.clear()

    def look(self, opened: OpenRollout, at: int) -> None:
        """Check a rollout at this time, unless it is checked earlier. A later deadline is found by that check."""
        if opened.look_at is None or at < opened.look_at:
            opened.look_at = at
            heapq.heappush(self._due, (at, opened.rollout_id))

    def await_reading(self, opened: OpenRollout, at: int) -> None:
        """Look at a rollout when everything up to this time has been read."""
        if opened.awaited != at:
            opened.awaited = at
            heapq.heappush(self._unread.setdefault(opened.partition, []), (at, opened.rollout_id))

    def due(self, now: int) -> list[OpenRollout]:
        """Take the rollouts whose time has come."""
        found = []
        for at, opened in self._pop(self._due, now):
            if opened.look_at == at:  # else an earlier check was made instead
                opened.look_at = None
                found.append(opened)
        return found

    def unread(self) -> list[int]:
        """The partitions in which rollouts wait for reading."""
        return [partition for partition, heap in self._unread.items() if heap]

    def read(self, partition: int, watermark: int | None) -> list[OpenRollout]:
        """Take the rollouts for which everything that they waited for has been read."""
        found: list[OpenRollout] = []
        if watermark is None:
            return found
        for at, opened in self._pop(self._unread[partition], watermark):
            if opened.awaited == at:  # else it was held again, or waits for its settling
                opened.awaited = None
                found.append(opened)
        return found

    def _pop(self, heap: list[Entry], until: int) -> Iterator[tuple[int, OpenRollout]]:
        while heap and heap[0][0] <= until:
            at, rollout_id = heapq.heappop(heap)
            if (opened := self._open.get(rollout_id)) is not None:
                yield at, opened
