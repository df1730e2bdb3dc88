"""Closed rollouts out of a log: the facts that the decisions pin, folded again, one rollout after the other.

Nothing is decided here: a rollout that has settled and closed in the log comes out with everything that was pinned, ready
for `emit`; one that has not is left alone. One partition is read at a time, and of it first what is small: when the events
come, it is known whose are needed and how many, so a rollout leaves as soon as its last event is there.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from agents.facts.fact import Fact
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from schemas.closures import SettledBranch
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from streams.jobs.export.inputs import Input, Source
from streams.log.facts import read_fact, rollout_of_key
from streams.log.reader import Stored
from streams.log.topics import (
    AGENT_EVENTS,
    BUILD_VERDICTS,
    CHECK_VERDICTS,
    CLOSURES,
    JUDGE_VOTES,
    LIFECYCLE,
    VISUAL_VERDICTS,
)

SMALL = (LIFECYCLE, BUILD_VERDICTS, VISUAL_VERDICTS, CHECK_VERDICTS, JUDGE_VOTES, CLOSURES)
"""Read before the events. Decisions come after the votes, so that votes which came too late are held, too: they do not
count, but they were paid for."""


@dataclass
class Refold:
    """Folds a log again; says afterwards what it left out."""

    source: Input
    open: int = 0
    """Rollouts that have not closed."""
    broken: list[str] = field(default_factory=list)
    """Closed rollouts of which the log does not hold what was pinned."""
    undecodable: int = 0
    """Records that are no facts; the live worker made dead letters of them."""

    async def rollouts(self) -> AsyncGenerator[Rollout, None]:
        """Every closed rollout with its facts, by partition, in the order in which their events are complete."""
        for partition in self.source.partitions():
            async for rollout in self._partition(partition):
                yield rollout

    async def _partition(self, partition: int) -> AsyncGenerator[Rollout, None]:
        sources = await self.source.open(partition, (*SMALL, AGENT_EVENTS), {})
        rollouts: dict[str, Rollout] = {}
        for topic in SMALL:
            async for rollout_id, fact, stored in self._facts(sources[topic]):
                rollout = rollouts.get(rollout_id)
                if rollout is None:
                    rollout = rollouts[rollout_id] = Rollout(rollout_id)
                _add(rollout, fact, stored)
        waiting = {rollout_id: rollout for rollout_id, rollout in rollouts.items() if rollout.closed is not None}
        unclosed = rollouts.keys() - waiting.keys()
        del rollouts
        for rollout in waiting.values():
            assert rollout.settled is not None
            rollout.redacting = pinned_config(rollout.settled).redact
        async for rollout_id, fact, stored in self._facts(sources[AGENT_EVENTS]):
            if rollout_id not in waiting:
                unclosed.add(rollout_id)
                continue
            rollout = waiting[rollout_id]
            _add(rollout, fact, stored)
            if _may_be_last(rollout, fact) and rollout.has_closed_facts():
                yield waiting.pop(rollout_id)
        # What had no events, or got them in another order than they were made.
        for rollout_id, rollout in list(waiting.items()):
            if rollout.has_closed_facts():
                yield waiting.pop(rollout_id)
        self.broken += sorted(waiting)
        self.open += len(unclosed)

    async def _facts(self, source: Source) -> AsyncGenerator[tuple[str, Fact, Stored], None]:
        codec = self.source.codec
        while (stored := await source.next()) is not None:
            await codec.prepare([stored.value])
            try:
                rollout_id = rollout_of_key(stored.key)
                yield rollout_id, read_fact(codec, stored.topic, stored.value, rollout_id), stored
            except DecodeError:
                self.undecodable += 1


def _add(rollout: Rollout, fact: Fact, stored: Stored) -> None:
    # What does not count is not ours to report: it became a dead letter when it was read first.
    rollout.add(fact, stored.at, (stored.topic.name, stored.partition, stored.offset))


def _may_be_last(rollout: Rollout, fact: Fact) -> bool:
    """Whether a slice reaches the last event that counts of its branch: only then it is worth while to look at the rest."""
    if not isinstance(fact, AgentEvents) or rollout.settled is None:
        return False
    pin: SettledBranch | None = next(
        (pin for pin in rollout.settled.branches if pin.branch_index == fact.branch_index), None
    )
    return pin is not None and (pin.last_seq is None or fact.first_seq + len(fact.events) > pin.last_seq)
