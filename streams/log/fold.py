"""The fold of stored facts: reads the records of one partition, returns whole rollouts, and reports holes if facts are
lost.

Topics may come in any order; `interleaving.py` has two. A rollout leaves when everything that was pinned of it has been
read, unless the caller decides that itself, fact by fact.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, final

from agents.facts.fact import Fact
from agents.rollouts.missing_facts import missing
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from streams.log.facts import read_fact, rollout_of_key
from streams.log.record import LogRecord
from streams.log.text_spill import process_texts
from streams.log.topics import CLOSURES, FACTS, Topic
from streams.log.wire import Codec

Refused = Callable[[Topic, LogRecord, DecodeError], None]

NAMED = 3
"""Unreadable records that are named for a rollout."""

UNKNOWN = "(unknown)"
"""The id for lost rollouts whose id is not known."""


class Hole(NamedTuple):
    """A rollout that has closed, or may have, and cannot be made again."""

    rollout_id: str
    """UNKNOWN if it is not known which rollout the lost facts belong to."""
    why: tuple[str, ...]


class Unread:
    """Records that cannot be read: all are counted, some are named."""

    def __init__(self) -> None:
        self._places: list[str] = []
        self._count = 0

    def add(self, place: str) -> None:
        """Count one; `place` has its position and why it cannot be read."""
        self._count += 1
        if len(self._places) < NAMED:
            self._places.append(place)

    def named(self) -> list[str]:
        """For people."""
        rest = self._count - len(self._places)
        return self._places + ([f"and {rest:,} more records that cannot be read"] if rest else [])


@final
class Said:
    """A fact, and the rollout that it is about."""

    __slots__ = ("fact", "rollout_id")

    def __init__(self, rollout_id: str, fact: Fact) -> None:
        self.rollout_id = rollout_id
        self.fact = fact


class Fold:
    """The rollouts of one partition.

    `redacting` returns for which rollouts events are redacted, and `refused` gets the records that cannot be read.
    """

    def __init__(
        self, codec: Codec, partition: int, redacting: Callable[[str], bool], refused: Refused | None = None
    ) -> None:
        self._codec = codec
        self._partition = partition
        self._redacting = redacting
        self._refused = refused
        self.rollouts: dict[str, Rollout] = {}
        """Rollouts that have not been released."""
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
        for record in records:
            said = self.read(topic, record)
            if said is None:
                continue
            rollout = self.add(topic, record, said)
            if rollout.closed is not None:
                touched[said.rollout_id] = rollout
        whole = [rollout for rollout in touched.values() if rollout.has_closed_facts()]
        for rollout in whole:
            self.leave(rollout.rollout_id)
        return whole

    def read(self, topic: Topic, record: LogRecord) -> Said | None:
        """Decode a record; None if its rollout was released, or it cannot be read."""
        try:
            rollout_id = rollout_of_key(record.key)
        except DecodeError as error:
            self._refuse(topic, record, None, error)
            return None
        if rollout_id in self._left:
            return None  # late, or repeated
        try:
            fact = read_fact(self._codec, topic, record.value, rollout_id)
        except DecodeError as error:
            self._refuse(topic, record, rollout_id, error)
            return None
        self.facts += 1
        if type(fact) is AgentEvents:
            self.events += len(fact.events)
        elif type(fact) is Closure and fact.closed is not None:
            self._closing.add(rollout_id)
        return Said(rollout_id, fact)

    def add(self, topic: Topic, record: LogRecord, said: Said) -> Rollout:
        """Fold a fact that was read; returns its rollout."""
        rollout = self.rollouts.get(said.rollout_id)
        if rollout is None:
            redacting = self._redacting(said.rollout_id)
            rollout = Rollout(said.rollout_id, redacting=redacting, texts=process_texts())
            self.rollouts[said.rollout_id] = rollout
        # Uncounted records are not reported here: it became a dead letter when it was read first.
        rollout.add(said.fact, record.at, (topic.name, self._partition, record.offset))
        return rollout

    def leave(self, rollout_id: str) -> None:
        """Let a rollout go; later records about it are skipped."""
        self._forget(rollout_id)
        self._left.add(rollout_id)

    def _forget(self, rollout_id: str) -> None:
        self.rollouts.pop(rollout_id, None)
        self._closing.discard(rollout_id)
        self._unreadable.pop(rollout_id, None)

    def _refuse(self, topic: Topic, record: LogRecord, rollout_id: str | None, error: DecodeError) -> set[str]:
        """Note a record that cannot be read; returns the rollouts that it is about."""
        self.undecodable += 1
        if self._refused is not None:
            self._refused(topic, record, error)
        place = f"{topic.name}/{self._partition}@{record.offset}: {error}"
        concerned = set() if rollout_id is None else {rollout_id}
        if rollout_id is None:
            self._nobodys[topic.name].add(place)
        if topic is CLOSURES:
            concerned |= decided_in(self._codec, record) - self._left
            self._closing |= concerned
        for each in concerned:
            self._unreadable[each].add(place)
        return concerned

    def holes(self, lost: Mapping[str, str]) -> list[Hole]:
        """Rollouts that have closed in the log and are incomplete at its end; `lost` has the topics with losses.

        If decisions were lost, a rollout without one may have closed: it is listed, too.
        """
        if CLOSURES.name in lost:
            self._closing |= self.rollouts.keys()
        lacking = {each: (*self._lacks(each), *self._unread(each)) for each in self._closing}
        return self._named(lacking, lost, {CLOSURES.name})

    def _named(
        self, lacking: Mapping[str, Sequence[str]], lost: Mapping[str, str], telling: Collection[str]
    ) -> list[Hole]:
        """Holes with every possible reason; at least one if a topic of `telling` has losses."""
        gone = [f"{name}/{self._partition}: {what}" for name, what in sorted(lost.items())]
        facts = [place for name, unread in self._nobodys.items() if name != CLOSURES.name for place in unread.named()]
        holes = [Hole(each, (*why, *facts, *gone)) for each, why in sorted(lacking.items())]
        decisions = self._nobodys[CLOSURES.name].named()
        if decisions or (not holes and any(name in telling for name in lost)):
            holes.append(Hole(UNKNOWN, (*decisions, *gone)))
        return holes

    def _lacks(self, rollout_id: str) -> list[str]:
        return missing(self.rollouts.get(rollout_id) or Rollout(rollout_id))

    def _unread(self, rollout_id: str) -> list[str]:
        return self._unreadable[rollout_id].named() if rollout_id in self._unreadable else []

    def open(self) -> int:
        """Rollouts that have facts and have not closed."""
        return len(self.rollouts.keys() - self._closing)


def decided_in(codec: Codec, record: LogRecord) -> set[str]:
    """The rollouts that a refused decision is about, if it names them itself: its key belongs to another one."""
    try:
        fact = codec.decode(CLOSURES, record.value)
    except DecodeError:
        return set()
    return {part.rollout_id for part in dict(fact).values() if part is not None}
