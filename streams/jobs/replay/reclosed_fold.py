"""Folds the facts of one partition to close its rollouts again: a rollout is released with its last record, whatever
was decided about it.

Decisions in the log only show which facts existed. The records of each rollout were counted before, so that memory
holds only the rollouts open at one moment.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial

from agents.rollouts.missing_facts import missing
from agents.rollouts.rollout import Rollout
from agents.trust.trusted_keys import TrustedKeys, is_trusted
from schemas.closures import Closure
from schemas.errors import DecodeError
from streams.log.fold import Fold, Hole
from streams.log.record import LogRecord
from streams.log.topics import CLOSURES, Topic
from streams.log.wire import Codec


class Reclosing(Fold):
    """The rollouts of one partition, for callers that make the decisions themselves."""

    def __init__(
        self,
        codec: Codec,
        partition: int,
        redacting: Callable[[str], bool],
        coming: Counter[str],
        lost: Mapping[str, str],
        trusted: TrustedKeys | None = None,
    ) -> None:
        super().__init__(codec, partition, redacting)
        self._coming = coming
        """By rollout, how many records about it have not been read; counted down here."""
        self._lost = lost
        self._trusted = trusted
        """The keys whose verdicts count in new decisions; None: all verdicts count."""
        self._decisions: dict[str, list[Closure]] = {}
        """The facts in the log about rollouts that have not left."""
        self._ready: list[str] = []
        """Rollouts whose last record has been read."""
        self._lacking: dict[str, tuple[str, ...]] = {}
        """Rollouts released without some of their facts."""

    def take(self, topic: Topic, records: Sequence[LogRecord]) -> list[Rollout]:
        """Fold records of a topic; return the rollouts whose records have all been read."""
        for record in records:
            said = self.read(topic, record)
            if said is None:
                continue
            if isinstance(said.fact, Closure):
                self._decisions.setdefault(said.rollout_id, []).append(said.fact)
            else:
                self.add(topic, record, said)
            self._count(said.rollout_id)
        ready, self._ready = self._ready, []
        return [rollout for each in ready if (rollout := self._leaving(each)) is not None]

    def _refuse(self, topic: Topic, record: LogRecord, rollout_id: str | None, error: DecodeError) -> set[str]:
        concerned = super()._refuse(topic, record, rollout_id, error)
        for each in sorted(concerned):  # rollouts are written in the order in which they are released
            self._count(each)
        return concerned

    def _count(self, rollout_id: str) -> None:
        self._coming[rollout_id] -= 1
        if not self._coming[rollout_id]:
            del self._coming[rollout_id]
            self._ready.append(rollout_id)

    def _leaving(self, rollout_id: str) -> Rollout | None:
        """Release a rollout; return None if it cannot be decided."""
        rollout = self.rollouts.get(rollout_id)
        if not self._has_its_facts(rollout_id):
            self._lacking[rollout_id] = (*self._lacks(rollout_id), *self._unread(rollout_id))
            rollout = None
        elif rollout is not None and self._trusted is not None:
            rollout.keep_verdicts(partial(is_trusted, keys=self._trusted))
        self._forget(rollout_id)
        self._decisions.pop(rollout_id, None)
        return rollout

    def holes(self, lost: Mapping[str, str]) -> list[Hole]:
        """Rollouts released without some of their facts.

        New decisions need all facts: a rollout is listed if facts were lost, or cannot be read, and no decision proves
        that its own are complete.
        """
        self._closing |= self._coming.keys()
        for rollout_id in self._coming:
            self._lacking[rollout_id] = ("the log was changed while it was read; replay it again",)
        return self._named(self._lacking, lost, lost.keys())

    def _has_its_facts(self, rollout_id: str) -> bool:
        facts_lost = bool(self._lost.keys() - {CLOSURES.name})
        decided, unread = self._decided(rollout_id), rollout_id in self._unreadable
        if decided.closed is not None or rollout_id in self._closing:
            return decided.has_closed_facts()
        if unread or facts_lost:
            return False
        return rollout_id not in self._decisions or decided.has_settled_facts()

    def _lacks(self, rollout_id: str) -> list[str]:
        return missing(self._decided(rollout_id))

    def _decided(self, rollout_id: str) -> Rollout:
        """A rollout as the log has decided it."""
        rollout = copy(self.rollouts.get(rollout_id) or Rollout(rollout_id))
        for decision in self._decisions.get(rollout_id, ()):
            rollout.add(decision, 0, (CLOSURES.name, self._partition, 0))
        return rollout
