"""Records that a replay emits, held against those that the live worker emitted: byte by byte, without signatures."""

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from pydantic import BaseModel

from agents.evidence.signing import SigningKey
from agents.rollouts.emit import Emission
from schemas import avro_body
from schemas.base import Record
from schemas.errors import DecodeError
from schemas.evidence import AepRecord
from streams.headers import identity
from streams.replaying.logs import FactLog, ReplayError
from streams.topics import BRANCHES, BY_RECORD, DPO, EVIDENCE, PPO, RANKINGS, REJECTED, SFT, Topic

SINKS: tuple[Topic, ...] = (BRANCHES, RANKINGS, EVIDENCE, SFT, DPO, PPO, REJECTED)

NAMED = 20
"""Records that are named; all are counted."""


class Made(NamedTuple):
    """A record that is emitted."""

    topic: Topic
    record: Record
    """Signed, where it is evidence and there is a key."""
    body: bytes | None
    """Its Avro body, where it is known."""
    redacted: bool
    """Whether secrets were removed from it, by the rules that this code has."""


class Comparison(BaseModel):
    """How the sinks compare with what was replayed."""

    identical: int = 0
    repeated: int = 0
    """Written again, with the same bytes."""
    different: int = 0
    missing: int = 0
    """Emitted now, and not in the sinks."""
    extra: int = 0
    """In the sinks, of a rollout that was replayed, and not emitted now."""
    superseded: int = 0
    """Records of branches that were announced when they ended and replaced by a later attempt."""
    elsewhere: int = 0
    """Of rollouts that were not replayed."""
    named: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether everything is as it was."""
        return not (self.different or self.missing or self.extra)

    def name(self, what: str) -> None:
        """Remember an example."""
        if len(self.named) < NAMED:
            self.named.append(what)


class Emitted:
    """What a partition has emitted: counts, and one digest per sink that does not depend on the order of records."""

    def __init__(self, *, remember: bool) -> None:
        self._remember = remember
        self.records: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._known: dict[tuple[str, str], bytes] = {}
        self._rollouts: set[str] = set()

    def add(self, emission: Emission, key: SigningKey | None) -> list[Made]:
        """Count what a rollout became; returns it as it is written, evidence signed."""
        if self._remember:
            self._rollouts.add(emission.ranking.rollout_id)
        made = []
        for record in (*emission.branches, emission.ranking, *emission.rows, *emission.rejected):
            topic, body = BY_RECORD[type(record)], emission.bodies[identity(record)]
            self._count(topic, identity(record), body)
            made.append(Made(topic, record, body, emission.redacted))
        for evidence, signed in zip(emission.evidence, emission.signed(key), strict=True):
            body = avro_body.encode(evidence)
            self._count(EVIDENCE, evidence.record_id, body)
            made.append(Made(EVIDENCE, signed, body if signed is evidence else None, emission.redacted))
        return made

    def _count(self, topic: Topic, record_id: str, body: bytes) -> None:
        digest = sha256(body).digest()
        self.records[topic.name] += 1
        self._sums[topic.name] += int.from_bytes(digest, "big")
        if self._remember:
            self._known[topic.name, record_id] = digest

    def digests(self) -> dict[str, str]:
        """By sink, the sum of all SHA-256 digests modulo 2^256: the same records in any order give the same."""
        return {name: f"{total % 2**256:064x}" for name, total in sorted(self._sums.items())}

    async def compare(self, log: FactLog, partition: int) -> Comparison:
        """Hold the sinks of a log against what was emitted."""
        found = Comparison()
        seen: set[tuple[str, str]] = set()
        spans = await log.spans(SINKS)
        if not any(spans.values()):
            raise ReplayError(
                f"{log.place} holds facts only: there is nothing to compare with (`braid archive --all` keeps it)"
            )
        for topic in SINKS:
            span = spans[topic.name].get(partition)
            if span is None:
                continue
            async for records in log.blocks(topic, partition, span):
                await log.learn(records)
                for stored in records:
                    self._hold(found, seen, topic, (partition, stored.offset), log, stored.value)
        for name, record_id in sorted(self._known.keys() - seen):
            found.missing += 1
            found.name(f"missing: {name} {record_id}")
        return found

    def _hold(
        self, found: Comparison, seen: set[tuple[str, str]], topic: Topic, place: tuple[int, int], log: FactLog, value: bytes | None
    ) -> None:  # fmt: skip
        where = f"{topic.name}/{place[0]}@{place[1]}"
        try:
            record = log.codec.decode(topic, value)
        except DecodeError as error:
            found.different += 1
            found.name(f"unreadable: {where}: {error}")
            return
        known = (topic.name, identity(record))
        wanted = self._known.get(known)
        if wanted is None:
            self._extra(found, topic, record, where)
        elif sha256(avro_body.encode(_unsigned(record))).digest() != wanted:
            found.different += 1
            found.name(f"different: {where} {known[1]}")
        elif known in seen:
            found.repeated += 1
        else:
            found.identical += 1
        seen.add(known)

    def _extra(self, found: Comparison, topic: Topic, record: Record, where: str) -> None:
        if getattr(record, "rollout_id", None) not in self._rollouts:
            found.elsewhere += 1
        elif topic is BRANCHES:
            found.superseded += 1
        else:
            found.extra += 1
            found.name(f"not emitted now: {where} {identity(record)}")


def combined(digests: list[Mapping[str, str]]) -> dict[str, str]:
    """The digests of several partitions as one."""
    sums: Counter[str] = Counter()
    for each in digests:
        for name, digest in each.items():
            sums[name] += int(digest, 16)
    return {name: f"{total % 2**256:064x}" for name, total in sorted(sums.items())}


def _unsigned(record: Record) -> Record:
    return record.model_copy(update={"signature": None}) if isinstance(record, AepRecord) else record
