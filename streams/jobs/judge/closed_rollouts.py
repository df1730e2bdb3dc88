"""The closed rollouts of a log, one after the other, each with the facts that its decisions pin, ready for `emit`.

Nothing is decided here: a rollout that has not closed in the log is left out. One partition is read at a time, the
events last: by then it is known whose events are needed and how many, so a rollout is passed on as soon as its last
event has been read.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field

from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from schemas.events import AgentEvents
from streams.log.fold import Fold, Said
from streams.log.interleaving import in_turn, partition_blocks
from streams.log.reader import LogReader
from streams.log.record import LogRecord
from streams.log.topics import (
    AGENT_EVENTS,
    BUILD_VERDICTS,
    CHECK_VERDICTS,
    CLOSURES,
    EVIDENCE,
    JUDGE_VOTES,
    LIFECYCLE,
    VISUAL_VERDICTS,
)

SMALL = (LIFECYCLE, BUILD_VERDICTS, VISUAL_VERDICTS, CHECK_VERDICTS, JUDGE_VOTES, CLOSURES)
"""Read before the events. Decisions are read after the votes, so that late votes are kept, too: they do not count, but
they were paid for.
"""


@dataclass
class ClosedRollouts:
    """Reads the closed rollouts of a log; its counts of the others are complete at the end."""

    log: LogReader
    open: int = 0
    """Rollouts that have not closed."""
    broken: list[str] = field(default_factory=list)
    """Closed rollouts whose pinned facts are not in the log."""
    undecodable: int = 0
    """Records that are no facts; the live worker made dead letters of them."""

    async def rollouts(self) -> AsyncGenerator[Rollout, None]:
        """Every closed rollout with its facts, by partition, in the order in which their events are complete."""
        for topic in (EVIDENCE, *SMALL, AGENT_EVENTS):
            self.log.require(topic)
        for partition in self.log.partitions(EVIDENCE):
            async for rollout in self._partition(partition):
                yield rollout

    async def _partition(self, partition: int) -> AsyncGenerator[Rollout, None]:
        spans = await self.log.spans((*SMALL, AGENT_EVENTS))
        fold = Fold(self.log.codec, partition, lambda _rollout_id: True)
        async for topic, records in partition_blocks(self.log, partition, SMALL, spans, in_turn):
            for record in records:
                if (said := fold.read(topic, record)) is not None:
                    fold.add(topic, record, said)
        unclosed = {rollout_id for rollout_id, rollout in fold.rollouts.items() if rollout.closed is None}
        for rollout_id in unclosed:
            del fold.rollouts[rollout_id]
        for rollout in fold.rollouts.values():
            assert rollout.settled is not None
            rollout.redacting = pinned_config(rollout.settled).redact
        async for _, records in partition_blocks(self.log, partition, (AGENT_EVENTS,), spans, in_turn):
            for rollout in _completed(fold, records, unclosed):
                yield rollout
        # Rollouts without events, or with events in another order than they were made.
        for rollout in [rollout for rollout in fold.rollouts.values() if rollout.has_closed_facts()]:
            fold.leave(rollout.rollout_id)
            yield rollout
        self.broken += sorted(fold.rollouts)
        self.open += len(unclosed)
        self.undecodable += fold.undecodable


def _completed(fold: Fold, records: Sequence[LogRecord], unclosed: set[str]) -> Iterator[Rollout]:
    """Fold events; yields the rollouts that are whole with them. Events of other rollouts only show that these are
    open.
    """
    for record in records:
        said = fold.read(AGENT_EVENTS, record)
        if said is None:
            continue
        if said.rollout_id not in fold.rollouts:
            unclosed.add(said.rollout_id)
            continue
        rollout = fold.add(AGENT_EVENTS, record, said)
        if _may_be_last(rollout, said) and rollout.has_closed_facts():
            fold.leave(rollout.rollout_id)
            yield rollout


def _may_be_last(rollout: Rollout, said: Said) -> bool:
    """Whether a slice reaches the last event of its branch that counts: only then the whole rollout is checked."""
    assert rollout.settled is not None
    fact = said.fact
    if not isinstance(fact, AgentEvents):
        return False
    pin = next((pin for pin in rollout.settled.branches if pin.branch_index == fact.branch_index), None)
    return pin is not None and (pin.last_seq is None or fact.first_seq + len(fact.events) > pin.last_seq)
