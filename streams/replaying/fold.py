"""The facts of one partition folded again: closed rollouts come out, and what keeps others from being made again."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

from agents.rollouts.missing import missing
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from streams.codec import Codec
from streams.embedded import LogRecord
from streams.facts import read_fact, rollout_of_key
from streams.topics import CLOSURES, FACTS, Topic

NAMED = 3
"""Unreadable records that are named for a rollout."""

UNKNOWN = "(unknown)"
"""Stands for rollouts that nothing names any more."""


class Hole(NamedTuple):
    """A rollout that has closed, or may have, and cannot be made again."""

    rollout_id: str
    """UNKNOWN where what is lost does not say of which."""
    why: tuple[str, ...]


class Unread:
    """Records that cannot be read: all are counted, some are named."""

    def __init__(self) -> None:
        self._places: list[str] = []
        self._count = 0

    def add(self, place: str) -> None:
        """Count one; `place` says where it is and why it cannot be read."""
        self._count += 1
        if len(self._places) < NAMED:
            self._places.append(place)

    def named(self) -> list[str]:
        """For people."""
        rest = self._count - len(self._places)
        return self._places + ([f"and {rest:,} more records that cannot be read"] if rest else [])


class Fold:
    """The rollouts of one partition. A rollout leaves when everything that was pinned of it has been read.

    When they are closed anew (`reclosing`), none leaves: decisions in the log only say which facts there have been.
    """

    def __init__(
        self, codec: Codec, partition: int, redacting: Callable[[str], bool], *, reclosing: bool = False
    ) -> None:
        self._codec = codec
        self._partition = partition
        self._redacting = redacting
        self._reclosing = reclosing
        self._open: dict[str, Rollout] = {}
        self._decisions: dict[str, list[Closure]] = {}
        """What stands in the log about rollouts that are closed anew."""
        self._left: set[str] = set()
        self._closing: set[str] = set()
        """Rollouts that have a closing, or a decision that cannot be read: it may be one."""
        self._unreadable: defaultdict[str, Unread] = defaultdict(Unread)
        self._nobodys = {topic.name: Unread() for topic in FACTS}
        """Records whose keys name no rollout."""
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
            except DecodeError as error:
                self._refuse(topic, record, None, error)
                continue
            if rollout_id in self._left:
                continue  # late, or said again
            try:
                fact = read_fact(self._codec, topic, record.value, rollout_id)
            except DecodeError as error:
                self._refuse(topic, record, rollout_id, error)
                continue
            self.facts += 1
            if type(fact) is AgentEvents:
                self.events += len(fact.events)
            elif type(fact) is Closure:
                if fact.closed is not None:
                    self._closing.add(rollout_id)
                if self._reclosing:
                    self._decisions.setdefault(rollout_id, []).append(fact)
                    continue
            rollout = opened.get(rollout_id)
            if rollout is None:
                rollout = opened[rollout_id] = Rollout(rollout_id, redacting=self._redacting(rollout_id))
            # What does not count is not ours to report: it became a dead letter when it was read first.
            rollout.add(fact, record.at, (name, self._partition, record.offset))
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

    def _refuse(self, topic: Topic, record: LogRecord, rollout_id: str | None, error: DecodeError) -> None:
        self.undecodable += 1
        place = f"{topic.name}/{self._partition}@{record.offset}: {error}"
        concerned = set() if rollout_id is None else {rollout_id}
        if rollout_id is None:
            self._nobodys[topic.name].add(place)
        if topic is CLOSURES:
            concerned |= self._decided_in(record) - self._left
            self._closing |= concerned
        for each in concerned:
            self._unreadable[each].add(place)

    def _decided_in(self, record: LogRecord) -> set[str]:
        """The rollouts that a refused decision is about, where it says so itself: its key is another one's."""
        try:
            fact = self._codec.decode(CLOSURES, record.value)
        except DecodeError:
            return set()
        return {part.rollout_id for part in dict(fact).values() if part is not None}

    def remaining(self) -> list[Rollout]:
        """All rollouts that have not left, and nothing is held any more: for those who decide themselves."""
        rest, self._open = list(self._open.values()), {}
        return rest

    def holes(self, lost: Mapping[str, str]) -> list[Hole]:
        """Rollouts that have closed in the log and are not whole at its end; `lost` says which topics have lost something.

        Where decisions were lost, a rollout without one may have closed: it is among them. Who decides anew needs all facts:
        then a rollout is among them when facts were lost, or cannot be read, and no decision says that its own are there.
        """
        if self._reclosing:
            suspects = self._closing | self._unreadable.keys() | self._decisions.keys()
            if lost.keys() - {CLOSURES.name}:
                suspects |= self._open.keys()
            self._closing = {each for each in suspects if not self._has_what_was_decided(each, lost)}
        elif CLOSURES.name in lost:
            self._closing |= self._open.keys()
        gone = [f"{name}/{self._partition}: {what}" for name, what in sorted(lost.items())]
        facts = [place for name, unread in self._nobodys.items() if name != CLOSURES.name for place in unread.named()]
        holes = [
            Hole(rollout_id, (*self._lacks(rollout_id), *self._unread(rollout_id), *facts, *gone))
            for rollout_id in sorted(self._closing)
        ]
        decisions = self._nobodys[CLOSURES.name].named()
        if decisions or (not holes and (CLOSURES.name in lost or (self._reclosing and lost))):
            holes.append(Hole(UNKNOWN, (*decisions, *gone)))
        return holes

    def _has_what_was_decided(self, rollout_id: str, lost: Mapping[str, str]) -> bool:
        decided = self._decided(rollout_id)
        if decided.closed is not None or rollout_id in self._closing:
            return decided.has_closed_facts()
        if rollout_id in self._unreadable or lost.keys() - {CLOSURES.name}:
            return False
        return decided.has_settled_facts()

    def _decided(self, rollout_id: str) -> Rollout:
        """A rollout as the log has decided it."""
        rollout = copy(self._open.get(rollout_id) or Rollout(rollout_id))
        for decision in self._decisions.get(rollout_id, ()):
            rollout.add(decision, 0, (CLOSURES.name, self._partition, 0))
        return rollout

    def _lacks(self, rollout_id: str) -> list[str]:
        return missing(self._decided(rollout_id))

    def _unread(self, rollout_id: str) -> list[str]:
        return self._unreadable[rollout_id].named() if rollout_id in self._unreadable else []

    def open(self) -> int:
        """Rollouts that have facts and have not closed."""
        return len(self._open.keys() - self._closing)
