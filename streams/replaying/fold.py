"""The facts of one partition folded again: closed rollouts come out, and what keeps others from being made again."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agents.rollouts.missing import missing
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from streams.codec import Codec
from streams.embedded import LogRecord
from streams.facts import read_fact, rollout_of_key
from streams.topics import CLOSURES, Topic

NAMED = 3
"""Unreadable records that are named for a rollout."""


class Hole(NamedTuple):
    """A rollout that has closed and cannot be made again."""

    rollout_id: str
    why: tuple[str, ...]


class Fold:
    """The rollouts of one partition. A rollout leaves when everything that was pinned of it has been read."""

    def __init__(self, codec: Codec, partition: int, redacting: Callable[[str], bool]) -> None:
        self._codec = codec
        self._partition = partition
        self._redacting = redacting
        self._open: dict[str, Rollout] = {}
        self._left: set[str] = set()
        self._closing: set[str] = set()
        self._unreadable: dict[str, list[str]] = {}
        self.events = 0
        self.facts = 0
        self.undecodable = 0
        """Records that are no facts; the live worker made dead letters of them."""

    def take(self, topic: Topic, records: Sequence[LogRecord]) -> list[Rollout]:
        """Fold records of a topic; returns the rollouts that are whole now."""
        touched: dict[str, Rollout] = {}
        name, opened = topic.name, self._open
        for record in records:
            try:
                rollout_id = rollout_of_key(record.key)
                if rollout_id in self._left:
                    continue  # late, or said again
                fact = read_fact(self._codec, topic, record.value, rollout_id)
            except DecodeError as error:
                self._refuse(name, record, error)
                continue
            rollout = opened.get(rollout_id)
            if rollout is None:
                rollout = opened[rollout_id] = Rollout(rollout_id, redacting=self._redacting(rollout_id))
            # What does not count is not ours to report: it became a dead letter when it was read first.
            rollout.add(fact, record.at, (name, self._partition, record.offset))
            self.facts += 1
            if type(fact) is AgentEvents:
                self.events += len(fact.events)
            elif type(fact) is Closure and fact.closed is not None:
                self._closing.add(rollout_id)
            if rollout.closed is not None:
                touched[rollout_id] = rollout
        whole = [rollout for rollout in touched.values() if rollout.has_closed_facts()]
        for rollout in whole:
            self._forget(rollout.rollout_id)
        return whole

    def _forget(self, rollout_id: str) -> None:
        del self._open[rollout_id]
        self._closing.discard(rollout_id)
        self._unreadable.pop(rollout_id, None)
        self._left.add(rollout_id)

    def _refuse(self, topic: str, record: LogRecord, error: DecodeError) -> None:
        self.undecodable += 1
        rollout_id = (record.key or b"").decode(errors="replace")
        known = self._unreadable.setdefault(rollout_id, [])
        if len(known) < NAMED:
            known.append(f"{topic}/{self._partition}@{record.offset}: {error}")

    def remaining(self) -> list[Rollout]:
        """All rollouts that have not left, and nothing is held any more: for those who decide themselves."""
        rest, self._open = list(self._open.values()), {}
        return rest

    def holes(self, lost: Mapping[str, str]) -> list[Hole]:
        """Rollouts that have closed in the log and are not whole at its end; `lost` says which topics have lost something.

        Where decisions were lost, a rollout without one may have closed: it is among them.
        """
        if CLOSURES.name in lost:
            self._closing |= self._open.keys()
        gone = tuple(f"{name}/{self._partition}: {what}" for name, what in sorted(lost.items()))
        return [
            Hole(rollout_id, (*missing(self._open[rollout_id]), *self._unreadable.get(rollout_id, []), *gone))
            for rollout_id in sorted(self._closing)
        ]

    def open(self) -> int:
        """Rollouts that have facts and have not closed."""
        return len(self._open.keys() - self._closing)
