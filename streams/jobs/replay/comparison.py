"""Compares the records of a replay with those of the live worker: byte by byte, without signatures."""

from collections.abc import Collection
from hashlib import sha256
from typing import NamedTuple

from pydantic import BaseModel

from agents.redaction.redaction import RULES_VERSION
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.errors import DecodeError
from schemas.evidence import AepRecord
from streams.jobs.errors import ReplayError
from streams.jobs.replay.emitted import Emitted
from streams.jobs.replay.explanation import Announced, Events, closed_outside
from streams.log.headers import identity, redacted_otherwise
from streams.log.reader import LogReader
from streams.log.record import NOTHING, LogRecord, Span
from streams.log.topics import BRANCHES, COMPLIANCE_EVALS, DPO, EVIDENCE, PPO, RANKINGS, REJECTED, SFT, Topic

SINKS: tuple[Topic, ...] = (BRANCHES, RANKINGS, COMPLIANCE_EVALS, EVIDENCE, SFT, DPO, PPO, REJECTED)

NAMED = 20
"""Records that are named; all are counted."""


class Comparison(BaseModel):
    """How the sinks compare with what was replayed."""

    identical: int = 0
    repeated: int = 0
    """Written again, with the same bytes."""
    different: int = 0
    missing: int = 0
    """Emitted now, and not in the sinks."""
    extra: int = 0
    """In the sinks, not emitted now, and unexplained by the log."""
    earlier: int = 0
    """Closing evidence from before it listed branch records: the same in everything else."""
    superseded: int = 0
    """Records of branches that were announced when they ended, and that settled otherwise: byte by byte."""
    elsewhere: int = 0
    """Not compared: records of rollouts that close outside the replayed part, and branches of those that have not
    closed.
    """
    holed: int = 0
    """Not compared: of rollouts that cannot be made again."""
    unread: int = 0
    """Not compared: sinks of a partition that could not be read to their end, and files that do not belong to the
    archive.
    """
    redacted_otherwise: int = 0
    """Those of the different or no longer emitted ones that were redacted by other rules than the current ones."""
    named: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether everything that was replayed is unchanged, and nothing else is there."""
        return not (self.different or self.missing or self.extra or self.holed or self.unread)

    def name(self, what: str) -> None:
        """Remember an example."""
        if len(self.named) < NAMED:
            self.named.append(what)


async def compare(
    emitted: Emitted, log: LogReader, partition: int, decisions: Span, holes: Collection[str]
) -> Comparison:
    """Compare the sinks of a log with the emitted records.

    `decisions` is the folded part of the partition's closings, `holes` the rollouts that could not be made.
    """
    held = _Held(log, partition, emitted, holes)
    # A closing is in the log before its output, so the ends of the sinks are read first.
    spans = await log.spans(SINKS)
    if not any(spans.values()):
        raise ReplayError(
            f"{log.place} holds facts only: there is nothing to compare with (`braid archive --all` keeps it)"
        )
    held.outside = await closed_outside(log, partition, decisions)
    for topic in SINKS:
        span = spans[topic.name].get(partition, NOTHING)
        async for records in log.blocks(topic, partition, span):
            await log.learn(records)
            for stored in records:
                held.hold(topic, stored)
        held.read_to_its_end(topic)
    await held.explain()
    return held.compared()


class _Suspect(NamedTuple):
    """A branch record that was not emitted."""

    where: str
    record: BranchRecord
    digest: bytes
    redacted_otherwise: bool


class _Held:
    """Compares the sinks of a partition, record by record, with the emitted records."""

    def __init__(self, log: LogReader, partition: int, emitted: Emitted, holes: Collection[str]) -> None:
        self._log = log
        self._partition = partition
        self._known = emitted.known
        self._earlier = emitted.earlier
        self._made = emitted.rollouts
        self._holes = holes
        self.outside: Collection[str] = ()
        """Rollouts that close in the log outside the replayed part."""
        self._found = Comparison()
        self._seen: set[tuple[str, str]] = set()
        self._suspects: list[_Suspect] = []

    def hold(self, topic: Topic, stored: LogRecord) -> None:
        """Compare a record, and count the result."""
        found, where = self._found, f"{topic.name}/{self._partition}@{stored.offset}"
        try:
            record = self._log.codec.decode(topic, stored.value)
        except DecodeError as error:
            found.different += 1
            found.name(f"unreadable: {where}: {error}")
            return
        known = (topic.name, identity(record))
        body = self._log.codec.encode_as(topic, stored.value, _unsigned(record))
        digest, wanted = sha256(body).digest(), self._known.get(known)
        otherwise = redacted_otherwise(stored.headers)
        if wanted is None:
            self._unknown(record, where, digest, otherwise)
            return
        if digest != wanted:
            found.different += 1
            found.redacted_otherwise += otherwise
            found.name(f"different: {where} {known[1]}{_by_other_rules(otherwise)}")
        elif known in self._seen:
            found.repeated += 1
        else:
            found.identical += 1
        self._seen.add(known)

    def _unknown(self, record: Record, where: str, digest: bytes, otherwise: bool) -> None:
        rollout_id = getattr(record, "rollout_id", "")
        made = rollout_id in self._made
        if digest in self._earlier:
            self._found.earlier += 1
            self._seen.add((EVIDENCE.name, self._earlier[digest]))
        elif not made and rollout_id in self._holes:
            self._found.holed += 1
        elif not made and rollout_id in self.outside:
            self._found.elsewhere += 1
        elif isinstance(record, BranchRecord):
            self._suspects.append(_Suspect(where, record, digest, otherwise))
        else:
            self._extra(record, where, otherwise)

    def _extra(self, record: Record, where: str, otherwise: bool) -> None:
        rollout_id = getattr(record, "rollout_id", "")
        known = rollout_id in self._made
        why = _by_other_rules(otherwise) if known else f": rollout {rollout_id} has not closed in the log"
        self._found.extra += 1
        self._found.redacted_otherwise += otherwise and known
        self._found.name(f"not emitted now: {where} {identity(record)}{why}")

    def read_to_its_end(self, topic: Topic) -> None:
        """Note sinks that could not be read to their end: their content is not known."""
        damage = self._log.damaged.get(topic.name, {}).get(self._partition)
        for why in [*([] if damage is None else [damage]), *self._log.foreign(topic, self._partition)]:
            self._found.unread += 1
            self._found.name(f"unreadable: {topic.name}/{self._partition}: {why}")

    async def explain(self) -> None:
        """Check whether branch records that were not emitted had been announced when their branches ended.

        The announcements of a rollout that has not closed depend on the worker's configuration, which the log does not
        pin yet: for them, the events must be the same.
        """
        if not self._suspects:
            return
        announced = await Announced.of(self._log, self._partition, [Events.of(each.record) for each in self._suspects])
        for where, record, digest, otherwise in self._suspects:
            if record.rollout_id in self._made and announced.exactly(digest):
                self._found.superseded += 1
            elif record.rollout_id not in self._made and announced.has(Events.of(record)):
                self._found.elsewhere += 1
            else:
                self._extra(record, where, otherwise)

    def compared(self) -> Comparison:
        """The result for all sinks."""
        for name, record_id in sorted(self._known.keys() - self._seen):
            self._found.missing += 1
            self._found.name(f"missing: {name} {record_id}")
        return self._found


def _by_other_rules(otherwise: bool) -> str:
    return f": redacted by other rules than {RULES_VERSION}, which this code has" if otherwise else ""


def _unsigned(record: Record) -> Record:
    return record.model_copy(update={"signature": None}) if isinstance(record, AepRecord) else record
