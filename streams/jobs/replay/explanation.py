"""Explains a record in a sink that follows from no closing, by the facts of its rollout or branch in the log.

A rollout may close outside of the part that is replayed, and a branch is announced when it ends, whatever settles
later. Both are in the log, so both are looked up there.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from agents.rollouts.branch_records import ended_branch
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from schemas.branches import BranchRecord
from schemas.closures import Closure
from schemas.emission import EmissionConfig
from schemas.events import AgentEvents
from streams.log.facts import readable_facts
from streams.log.fold import Fold, Said
from streams.log.interleaving import in_turn, partition_blocks
from streams.log.reader import LogReader
from streams.log.record import NOTHING, Span
from streams.log.topics import AGENT_EVENTS, CLOSURES, LIFECYCLE


async def closed_outside(log: LogReader, partition: int, inside: Span) -> set[str]:
    """The rollouts of a partition that have a closing in the log, before or after this part of its decisions."""
    there = (await log.spans((CLOSURES,)))[CLOSURES.name].get(partition, NOTHING)
    found = set()
    for span in (Span(there.start, min(inside.start, there.end)), Span(max(inside.end, there.start), there.end)):
        async for rollout_id, closure in _decisions(log, partition, span):
            if closure.closed is not None:
                found.add(rollout_id)
    return found


async def _decisions(log: LogReader, partition: int, span: Span) -> AsyncIterator[tuple[str, Closure]]:
    async for records in log.blocks(CLOSURES, partition, span):
        await log.learn(records)
        for rollout_id, fact in readable_facts(log.codec, CLOSURES, records):
            if isinstance(fact, Closure):
                yield rollout_id, fact


class Events(NamedTuple):
    """The events that a branch record claims to summarise."""

    rollout_id: str
    branch_index: int
    attempt: int
    raw_digest: str

    @classmethod
    def of(cls, record: BranchRecord) -> "Events":
        """The events of a record."""
        return cls(record.rollout_id, record.branch_index, record.attempt, record.raw_digest)


class Announced:
    """The branches that a worker announced when they ended, under any configuration that the log pins."""

    def __init__(self) -> None:
        self._bodies: set[bytes] = set()
        self._events: set[Events] = set()

    @classmethod
    async def of(cls, log: LogReader, partition: int, suspects: Iterable[Events]) -> "Announced":
        """Fold the events of the branches that records claim to be of, as far as the log goes."""
        found, branches = cls(), frozenset((each.rollout_id, each.branch_index) for each in suspects)
        configs = {config.digest: config for config in [EmissionConfig(), *await _pinned(log, partition)]}
        for redact in {config.redact for config in configs.values()}:
            await found._fold(log, partition, branches, [each for each in configs.values() if each.redact == redact])
        return found

    async def _fold(
        self, log: LogReader, partition: int, branches: Collection[tuple[str, int]], configs: list[EmissionConfig]
    ) -> None:
        """Fold the events of branches under configurations that redact alike."""
        fold = Fold(log.codec, partition, lambda _rollout_id: configs[0].redact)
        topics, keys = (LIFECYCLE, AGENT_EVENTS), {rollout_id.encode() for rollout_id, _ in branches}
        async for topic, records in partition_blocks(log, partition, topics, await log.spans(topics), in_turn):
            for record in records:
                said = fold.read(topic, record) if record.key in keys else None
                if said is not None and _concerns(said, branches):
                    self._announce(fold.add(topic, record, said), configs)

    def _announce(self, rollout: Rollout, configs: list[EmissionConfig]) -> None:
        for index, number in rollout.newly_ended():
            for config in configs:
                with suppress(BrokenLogError):  # too large to be announced
                    ended = ended_branch(rollout, index, number, config)
                    self._bodies.add(sha256(ended.body).digest())
                    self._events.add(Events.of(ended.record))

    def exactly(self, digest: bytes) -> bool:
        """Whether a record with this digest was announced, byte by byte."""
        return digest in self._bodies

    def has(self, events: Events) -> bool:
        """Whether the log has exactly the events that a record claims."""
        return events in self._events


def _concerns(said: Said, branches: Collection[tuple[str, int]]) -> bool:
    return not isinstance(said.fact, AgentEvents) or (said.rollout_id, said.fact.branch_index) in branches


async def _pinned(log: LogReader, partition: int) -> list[EmissionConfig]:
    span = (await log.spans((CLOSURES,)))[CLOSURES.name].get(partition, NOTHING)
    found: dict[str, EmissionConfig] = {}
    async for _, closure in _decisions(log, partition, span):
        settled = closure.settled
        if settled is not None and settled.config_digest not in found:
            with suppress(BrokenLogError):  # its rollout is named as a hole
                found[settled.config_digest] = pinned_config(settled)
    return list(found.values())
