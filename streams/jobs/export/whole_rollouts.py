"""Whole rollouts of one partition: a rollout is exported when its closing evidence is there and every row it lists was
read.

Rows, and branch records if they are wanted, are identified by the digest of their Avro body, which the closing record
lists: a changed row counts as missing, and one that was written twice counts once. Closing evidence from before it
listed branch records has no such digests: there a branch is identified by its evidence. Records of incomplete rollouts
are kept for the next time.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, cast

from agents.formats.shape import Kind, ToldBranch
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.closures import Closure, RolloutSettled
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from schemas.evidence import AepClosing, AepRecord
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.rankings import Ranking
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.jobs.export.branch_facts import FACT_TOPICS, VERDICTS, Gathering
from streams.log.cursor import Cursor
from streams.log.facts import read_fact
from streams.log.headers import is_redacted
from streams.log.record import LogRecord
from streams.log.topics import (
    AGENT_EVENTS,
    BRANCHES,
    CLOSURES,
    COMPLIANCE_EVALS,
    DPO,
    EVIDENCE,
    LIFECYCLE,
    PPO,
    RANKINGS,
    REJECTED,
    SFT,
    Topic,
)
from streams.log.wire import Codec, body_of

ROWS: tuple[Topic, ...] = (SFT, DPO, PPO, REJECTED)
"""Records that a closing record lists, apart from its ranking and its branches."""

TOPICS_OF: dict[Kind, tuple[Topic, ...]] = {
    "sft": (SFT,), "dpo": (DPO,), "ppo": (PPO,), "rejected": (REJECTED,), "branches": (BRANCHES,), "evals": (COMPLIANCE_EVALS,),
    "events": (*FACT_TOPICS, LIFECYCLE),
}  # fmt: skip

UNKNOWN = 0
"""In place of closing evidence that a checkpoint does not remember."""

Branch = tuple[int, int, str | None]
"""Index, attempt and raw digest: which record of a branch evidence speaks of."""


class Whole(NamedTuple):
    """Everything of one rollout."""

    rollout_id: str
    closing: AepClosing
    settled: RolloutSettled
    ranking: Ranking
    rows: Mapping[Topic, tuple[Record, ...]]
    """In the order of the evidence; only requested topics."""
    branches: tuple[BranchRecord, ...]
    evidence: Mapping[int, AepRecord]
    chain: tuple[AepRecord, ...]
    """All its evidence in order, the closing record last."""
    kept_out: Mapping[str, int]
    """Rows that the worker kept out of training, by their first reason."""
    redacted: bool
    """Whether all inputs of the rows were redacted by the current rules."""
    opened: RolloutOpened | None
    """Its opening, if requested."""
    weight: int
    """Bytes of its records in the log."""
    unlisted: int
    """Rows of the rollout that no evidence lists."""
    uncovered: bool
    """Whether its branch records are wanted, and its closing evidence does not list them."""
    told: Mapping[int, ToldBranch] = {}
    """The facts of its branches, if they are requested and form a conversation."""


class Incomplete(NamedTuple):
    """A closed rollout with missing records."""

    rollout_id: str
    missing: str


class Contradicted(NamedTuple):
    """A rollout exported earlier, whose closing evidence has changed since."""

    rollout_id: str


@dataclass
class _Pending:
    """The records read so far of an incomplete rollout."""

    rows: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By topic and digest; empty bytes if only the digest is needed."""
    unredacted: set[str] = field(default_factory=set)
    """Digests of rows that are not marked as redacted by the current rules."""
    closures: list[bytes] = field(default_factory=list)
    facts: dict[str, list[bytes]] = field(default_factory=dict)
    """By topic."""
    evidence: dict[str, AepRecord] = field(default_factory=dict)
    closed: bool = False
    first: dict[str, int] = field(default_factory=dict)
    """By topic, the offset of its first record."""


class PartitionReader:
    """Reads one partition."""

    def __init__(
        self, cursors: Mapping[Topic, Cursor], codec: Codec, kinds: Iterable[Kind], seen: dict[int, int]
    ) -> None:
        self._cursors = cursors
        self._codec = codec
        self._wanted = {topic for kind in kinds for topic in TOPICS_OF[kind]}
        self._kept = self._wanted | {RANKINGS, REJECTED}
        """Records whose bytes are needed, and not only their digests."""
        self._seen = seen
        """The rollouts that were taken, with the closing evidence of each, both in short."""
        self._met: set[int] = set()
        """Those of them whose closing evidence was read: the first one counts."""
        self._pending: dict[bytes, _Pending] = {}
        self._openings: dict[bytes, RolloutOpened] = {}
        self.undecodable = 0

    async def rollouts(self) -> AsyncGenerator[Whole | Incomplete | Contradicted, None]:
        """The closed rollouts, in the order of their closing evidence."""
        while (stored := await self._cursors[EVIDENCE].next()) is not None:
            if stored.key is None:
                continue
            if short(stored.key) in self._seen:
                if (contradicted := await self._contradicted(stored, short(stored.key))) is not None:
                    yield contradicted
                continue
            record = await self._decoded(EVIDENCE, stored)
            if not isinstance(record, AepRecord):
                continue
            pending = self._of(EVIDENCE, stored)
            if record.closing is None:
                pending.evidence[record.record_id] = record
            elif not pending.closed:
                pending.closed = True
                yield await self._close(stored.key, pending, record, record.closing)

    def offsets(self) -> dict[str, int]:
        """Offsets at which the next read begins: by topic, the first record of an incomplete rollout, else the end."""
        found = {topic.name: cursor.position for topic, cursor in self._cursors.items()}
        for pending in self._pending.values():
            for name, offset in pending.first.items():
                found[name] = min(found[name], offset)
        return found

    @property
    def open(self) -> int:
        """Rollouts that have records and no closing evidence."""
        return sum(not pending.closed for pending in self._pending.values())

    async def _contradicted(self, stored: LogRecord, rollout: int) -> Contradicted | None:
        """Whether evidence differs from the evidence by which a rollout was exported. Only a log that is read from its
        beginning can show this.
        """
        if rollout in self._met or self._cursors[EVIDENCE].start > 0:
            return None
        record = await self._decoded(EVIDENCE, stored)
        if not isinstance(record, AepRecord) or record.closing is None:
            return None
        self._met.add(rollout)
        taken = self._seen[rollout]
        return Contradicted(record.rollout_id) if taken not in (UNKNOWN, short(record.record_id.encode())) else None

    # -- one rollout ---------------------------------------------------------------------------------------------------

    async def _close(self, key: bytes, pending: _Pending, last: AepRecord, closing: AepClosing) -> Whole | Incomplete:
        needed = (*ROWS, *(topic for topic in (BRANCHES, COMPLIANCE_EVALS) if topic in self._wanted))
        listed = {
            topic: [emitted.digest for emitted in closing.emitted if emitted.topic == topic.name] for topic in needed
        }
        listed[RANKINGS] = [closing.ranking_digest]
        missing = [
            f"{len(absent)} of {topic.name}"
            for topic, digests in listed.items() if (absent := await self._fetch(key, pending, topic, digests))
        ]  # fmt: skip
        uncovered = BRANCHES in self._wanted and not listed[BRANCHES] and closing.records > 0
        if uncovered:
            listed[BRANCHES], absent_branches = await self._branches(key, pending)
            missing += [f"{absent_branches} of {BRANCHES.name}"] if absent_branches else []
        settled = await self._settled(key, pending, closing.settled_id)
        missing += [f"1 of {CLOSURES.name}"] if settled is None else []
        if len(pending.evidence) < closing.records:
            missing.append(f"{closing.records - len(pending.evidence)} of {EVIDENCE.name}")
        if missing or settled is None:
            pending.rows.clear()  # no more of it will be read now: only its first offset matters
            pending.closures.clear()
            return Incomplete(last.rollout_id, ", ".join(missing))
        whole = self._whole(last, closing, settled, listed, pending)
        told: Mapping[int, ToldBranch] | None = {}
        if AGENT_EVENTS in self._wanted and any(branch.fidelity is not None for branch in whole.branches):
            told = await self._facts(key, pending, settled)
        if told is None:
            pending.rows.clear()
            return Incomplete(last.rollout_id, f"facts of {AGENT_EVENTS.name}, or verdicts, that it settled with")
        opened = await self._opening_of(key)
        del self._pending[key]
        self._seen[short(key)] = short(last.record_id.encode())
        self._met.add(short(key))
        return whole._replace(opened=opened, uncovered=uncovered, told=told)

    def _whole(
        self, last: AepRecord, closing: AepClosing, settled: RolloutSettled, listed: Mapping[Topic, list[str]],
        pending: _Pending,
    ) -> Whole:  # fmt: skip
        values = {topic: [pending.rows[topic.name][digest] for digest in listed[topic]] for topic in listed}
        weight = sum(len(value) for found in values.values() for value in found)
        reasons = (self._codec.fields(REJECTED, value)["reasons"] for value in dict.fromkeys(values[REJECTED]))
        unlisted = sum(len(pending.rows.get(topic.name, {}).keys() - set(listed[topic])) for topic in ROWS)
        return Whole(
            last.rollout_id,
            closing,
            settled,
            cast("Ranking", self._codec.decode(RANKINGS, values[RANKINGS][0])),
            {
                topic: tuple(self._codec.decode(topic, value) for value in dict.fromkeys(values[topic]))
                for topic in (*ROWS, COMPLIANCE_EVALS) if topic in self._wanted
            },
            tuple(cast("BranchRecord", self._codec.decode(BRANCHES, value)) for value in values.get(BRANCHES, ())),
            {_branch_of(record)[0]: record for record in pending.evidence.values()},
            (*pending.evidence.values(), last),
            Counter(found[0] if found else "unknown" for found in reasons),
            pending.unredacted.isdisjoint(digest for topic in self._kept & listed.keys() for digest in listed[topic]),
            None,
            weight,
            unlisted,
            uncovered=False,
        )  # fmt: skip

    async def _fetch(self, key: bytes, pending: _Pending, topic: Topic, digests: list[str]) -> set[str]:
        """Read a topic until the rollout has its rows; return those that are missing."""
        absent = set(digests) - pending.rows.get(topic.name, {}).keys()
        while absent and (stored := await self._cursors[topic].next()) is not None:
            digest = await self._take(topic, stored)
            if stored.key == key:
                absent.discard(digest)
        return absent

    async def _take(self, topic: Topic, stored: LogRecord) -> str:
        if stored.value is None or stored.key is None or short(stored.key) in self._seen:
            return ""
        await self._codec.prepare([stored.value])
        digest = sha256(body_of(stored.value)).hexdigest()
        kept = stored.value if topic in self._kept else b""
        pending = self._of(topic, stored)
        pending.rows.setdefault(topic.name, {})[digest] = kept
        if kept and not is_redacted(stored.headers):
            pending.unredacted.add(digest)
        return digest

    async def _branches(self, key: bytes, pending: _Pending) -> tuple[list[str], int]:
        """The digests of the records of the branches in the evidence, in order, and how many are missing."""
        wanted = {_branch_of(record) for record in pending.evidence.values()}
        found: dict[Branch, str] = {}
        for digest, value in pending.rows.get(BRANCHES.name, {}).items():
            self._match(digest, value, wanted, found)
        while len(found) < len(wanted) and (stored := await self._cursors[BRANCHES].next()) is not None:
            digest = await self._take(BRANCHES, stored)
            if digest and stored.key == key:
                self._match(digest, pending.rows[BRANCHES.name][digest], wanted, found)
        return [found[branch] for branch in sorted(found, key=lambda each: each[:2])], len(wanted) - len(found)

    def _match(self, digest: str, value: bytes, wanted: set[Branch], found: dict[Branch, str]) -> None:
        try:
            record = cast("BranchRecord", self._codec.decode(BRANCHES, value))
        except DecodeError:
            self.undecodable += 1
            return
        branch = (record.branch_index, record.attempt, record.raw_digest)
        if branch in wanted:
            found[branch] = digest

    async def _settled(self, key: bytes, pending: _Pending, settled_id: str) -> RolloutSettled | None:
        """The decision that evidence names."""
        for value in pending.closures:
            if (settled := self._settling(value, settled_id)) is not None:
                return settled
        while (stored := await self._cursors[CLOSURES].next()) is not None:
            if stored.value is None or stored.key is None or short(stored.key) in self._seen:
                continue
            await self._codec.prepare([stored.value])
            self._of(CLOSURES, stored).closures.append(stored.value)
            if stored.key == key and (settled := self._settling(stored.value, settled_id)) is not None:
                return settled
        return None

    def _settling(self, value: bytes, settled_id: str) -> RolloutSettled | None:
        try:
            settled = cast("Closure", self._codec.decode(CLOSURES, value)).settled
        except DecodeError:
            self.undecodable += 1
            return None
        return settled if settled is not None and settled.settled_id == settled_id else None

    async def _facts(self, key: bytes, pending: _Pending, settled: RolloutSettled) -> Mapping[int, ToldBranch] | None:
        """The facts of the branches that a decision pinned; None if some are missing, or differ from what was settled.

        Empty if the log has no events of the rollout at all, as in a replay's output: then only its rows are used.
        """
        gathering = Gathering(settled)
        for topic in (AGENT_EVENTS, *VERDICTS):
            for value in pending.facts.get(topic.name, ()):
                self._gather(topic, value, settled.rollout_id, gathering)
        while gathering.lacks_events and (stored := await self._cursors[AGENT_EVENTS].next()) is not None:
            await self._keep(AGENT_EVENTS, stored, key, settled.rollout_id, gathering)
        for topic in VERDICTS:
            while gathering.lacks_verdicts(topic) and (stored := await self._cursors[topic].next()) is not None:
                await self._keep(topic, stored, key, settled.rollout_id, gathering)
        return {} if gathering.lacks_all_events else gathering.branches()

    async def _keep(self, topic: Topic, stored: LogRecord, key: bytes, rollout_id: str, gathering: Gathering) -> None:
        """Keep a fact for its rollout, and collect it if it belongs to the current one."""
        if stored.value is None or stored.key is None or short(stored.key) in self._seen:
            return
        await self._codec.prepare([stored.value])
        self._of(topic, stored).facts.setdefault(topic.name, []).append(stored.value)
        if stored.key == key:
            self._gather(topic, stored.value, rollout_id, gathering)

    def _gather(self, topic: Topic, value: bytes, rollout_id: str, gathering: Gathering) -> None:
        try:
            fact = read_fact(self._codec, topic, value, rollout_id)
        except DecodeError:
            self.undecodable += 1
            return
        if isinstance(fact, AgentEvents):
            gathering.take_events(fact)
        elif isinstance(fact, BuildVerdict | VisualVerdict | CheckVerdict):
            gathering.take_verdict(fact)

    async def _opening_of(self, key: bytes) -> RolloutOpened | None:
        """The rollout's opening; the first one counts."""
        cursor = self._cursors.get(LIFECYCLE)
        while cursor is not None and key not in self._openings and (stored := await cursor.next()) is not None:
            record = await self._decoded(LIFECYCLE, stored)
            if isinstance(record, Lifecycle) and record.opened is not None and stored.key is not None:
                self._openings.setdefault(stored.key, record.opened)
        return self._openings.pop(key, None)

    # -- records -------------------------------------------------------------------------------------------------------

    def _of(self, topic: Topic, stored: LogRecord) -> _Pending:
        assert stored.key is not None
        pending = self._pending.setdefault(stored.key, _Pending())
        pending.first.setdefault(topic.name, stored.offset)
        return pending

    async def _decoded(self, topic: Topic, stored: LogRecord) -> Record | None:
        try:
            await self._codec.prepare([stored.value])
            return self._codec.decode(topic, stored.value)
        except DecodeError:
            self.undecodable += 1
            return None


def short(key: bytes) -> int:
    """The id of a rollout, or of its closing evidence, in 8 bytes, as a checkpoint stores it."""
    return int.from_bytes(sha256(key).digest()[:8], "big")


def _branch_of(record: AepRecord) -> Branch:
    """Which branch evidence speaks of, from its run id: `<rollout>/b<index>/a<attempt>`."""
    _, index, attempt = record.run_id.rsplit("/", 2)
    return int(index[1:]), int(attempt[1:]), record.raw_digest
