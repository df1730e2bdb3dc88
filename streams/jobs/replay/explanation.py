"""Why a sink holds a record that follows from no closing: what the log itself says about its rollout, or its branch.

A rollout may close outside of the part that is replayed, and a branch is announced when it ends, whatever settles later. Both
stand in the log, so both are looked up there.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from agents.facts.fact import Fact
from agents.rollouts.branch_records import ended_branch
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from schemas.branches import BranchRecord
from schemas.closures import Closure
from schemas.emission import EmissionConfig
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from streams.log.fact_log import FactLog
from streams.log.facts import read_fact, rollout_of_key
from streams.log.file_writer import LogRecord
from streams.log.kafka import Span
from streams.log.topics import AGENT_EVENTS, CLOSURES, LIFECYCLE, Topic

NOTHING = Span(0, 0)


async def closed_outside(log: FactLog, partition: int, inside: Span) -> set[str]:
    """The rollouts of a partition that have a closing in the log, before or after this part of its decisions."""
    there = (await log.spans((CLOSURES,)))[CLOSURES.name].get(partition, NOTHING)
    found = set()
    for span in (Span(there.start, min(inside.start, there.end)), Span(max(inside.end, there.start), there.end)):
        async for rollout_id, fact, _ in _facts(log, CLOSURES, partition, span):
            if isinstance(fact, Closure) and fact.closed is not None:
                found.add(rollout_id)
    return found


class Events(NamedTuple):
    """Which events a branch record says it is of."""

    rollout_id: str
    branch_index: int
    attempt: int
    raw_digest: str

    @classmethod
    def of(cls, record: BranchRecord) -> "Events":
        """Those of a record."""
        return cls(record.rollout_id, record.branch_index, record.attempt, record.raw_digest)


class Announced:
    """The branches that a worker announced when they ended, under any configuration that the log pins."""

    def __init__(self) -> None:
        self._bodies: set[bytes] = set()
        self._events: set[Events] = set()

    @classmethod
    async def of(cls, log: FactLog, partition: int, suspects: Iterable[Events]) -> "Announced":
        """Fold the events of the branches that records claim to be of, as far as the log goes."""
        found, branches = cls(), frozenset((each.rollout_id, each.branch_index) for each in suspects)
        wanted = frozenset(rollout_id for rollout_id, _ in branches)
        configs = {config.digest: config for config in [EmissionConfig(), *await _pinned(log, partition)]}
        for redacting in {config.redact for config in configs.values()}:
            under = [config for config in configs.values() if config.redact == redacting]
            folded = {rollout_id: Rollout(rollout_id, redacting=redacting) for rollout_id in wanted}
            for topic in (LIFECYCLE, AGENT_EVENTS):
                span = (await log.spans((topic,)))[topic.name].get(partition, NOTHING)
                async for rollout_id, fact, record in _facts(log, topic, partition, span, wanted):
                    if isinstance(fact, AgentEvents) and (rollout_id, fact.branch_index) not in branches:
                        continue
                    rollout = folded[rollout_id]
                    rollout.add(fact, record.at, (topic.name, partition, record.offset))
                    found._announce(rollout, under)
        return found

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
        """Whether the log has the very events that a record says it is of."""
        return events in self._events


async def _pinned(log: FactLog, partition: int) -> list[EmissionConfig]:
    span = (await log.spans((CLOSURES,)))[CLOSURES.name].get(partition, NOTHING)
    found: dict[str, EmissionConfig] = {}
    async for _, fact, _ in _facts(log, CLOSURES, partition, span):
        if isinstance(fact, Closure) and fact.settled is not None and fact.settled.config_digest not in found:
            with suppress(BrokenLogError):  # its rollout is named as a hole
                found[fact.settled.config_digest] = pinned_config(fact.settled)
    return list(found.values())


async def _facts(
    log: FactLog, topic: Topic, partition: int, span: Span, wanted: frozenset[str] | None = None
) -> AsyncIterator[tuple[str, Fact, LogRecord]]:
    """The facts of part of a partition that can be read, of some rollouts or of all."""
    if span.start >= span.end:
        return
    async for records in log.blocks(topic, partition, span):
        await log.learn(records)
        for record in records:
            try:
                rollout_id = rollout_of_key(record.key)
                if wanted is None or rollout_id in wanted:
                    yield rollout_id, read_fact(log.codec, topic, record.value, rollout_id), record
            except DecodeError:
                continue
