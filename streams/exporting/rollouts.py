"""Whole rollouts of one partition: a rollout is taken when its closing evidence is there and every row it lists was read.

Rows are told apart by the digest of their Avro body, which the closing record states: a row that was changed is a row that
is missing, and one that was written twice is one row. What belongs to rollouts that are not whole stays for the next time.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, cast

from agents.training.formats.shape import Kind
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.errors import DecodeError
from schemas.evidence import AepClosing, AepRecord
from schemas.lifecycle import Lifecycle
from schemas.rankings import Ranking
from streams.codec import Codec, body_of
from streams.exporting.inputs import Source
from streams.looking.log import Stored
from streams.topics import BRANCHES, DPO, EVIDENCE, LIFECYCLE, PPO, RANKINGS, REJECTED, SFT, Topic

ROWS: tuple[Topic, ...] = (SFT, DPO, PPO, REJECTED)
"""Whose records a closing record lists, beside its ranking."""

TOPICS_OF: dict[Kind, Topic] = {"sft": SFT, "dpo": DPO, "ppo": PPO, "rejected": REJECTED, "branches": BRANCHES}

Branch = tuple[int, int, str | None]
"""Index, attempt and raw digest: which record of a branch evidence speaks of."""


class Whole(NamedTuple):
    """Everything of one rollout."""

    rollout_id: str
    closing: AepClosing
    ranking: Ranking
    rows: Mapping[Topic, tuple[Record, ...]]
    """In the order in which evidence lists them; only topics that were asked for."""
    branches: tuple[BranchRecord, ...]
    evidence: Mapping[int, AepRecord]
    labels: Mapping[str, str]
    weight: int
    """Bytes of its records in the log."""
    unlisted: int
    """Rows of the rollout that no evidence lists."""


class Incomplete(NamedTuple):
    """A closed rollout of which something is missing."""

    rollout_id: str
    missing: str


@dataclass
class _Pending:
    """What was read of a rollout that is not whole yet."""

    rows: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By topic and digest; empty bytes where only the digest is needed."""
    branches: list[bytes] = field(default_factory=list)
    evidence: dict[str, AepRecord] = field(default_factory=dict)
    closed: bool = False
    first: dict[str, int] = field(default_factory=dict)
    """By topic, the offset of its first record."""


class PartitionReader:
    """Reads one partition."""

    def __init__(self, sources: Mapping[Topic, Source], codec: Codec, kinds: Iterable[Kind], seen: set[int]) -> None:
        self._sources = sources
        self._codec = codec
        self._wanted = {TOPICS_OF[kind] for kind in kinds} | {RANKINGS}
        self._seen = seen
        self._pending: dict[bytes, _Pending] = {}
        self._labels: dict[bytes, dict[str, str]] = {}
        self.undecodable = 0

    async def rollouts(self) -> AsyncGenerator[Whole | Incomplete, None]:
        """The closed rollouts, in the order of their closing evidence."""
        while (stored := await self._sources[EVIDENCE].next()) is not None:
            if stored.key is None or short(stored.key) in self._seen:
                continue
            record = await self._decoded(stored)
            if not isinstance(record, AepRecord):
                continue
            pending = self._of(stored)
            if record.closing is None:
                pending.evidence[record.record_id] = record
            elif not pending.closed:
                pending.closed = True
                yield await self._close(stored.key, pending, record.rollout_id, record.closing)

    def offsets(self) -> dict[str, int]:
        """From where to read the next time: by topic, the first record of a rollout that is not whole, else the end."""
        found = {topic.name: source.position for topic, source in self._sources.items()}
        for pending in self._pending.values():
            for name, offset in pending.first.items():
                found[name] = min(found[name], offset)
        return found

    @property
    def open(self) -> int:
        """Rollouts that have records and no closing evidence."""
        return sum(not pending.closed for pending in self._pending.values())

    # -- one rollout ---------------------------------------------------------------------------------------------------

    async def _close(self, key: bytes, pending: _Pending, rollout_id: str, closing: AepClosing) -> Whole | Incomplete:
        listed: dict[Topic, list[str]] = {topic: [] for topic in ROWS}
        listed[RANKINGS] = [closing.ranking_digest]
        names = {topic.name: topic for topic in ROWS}
        for emitted in closing.emitted:
            if emitted.topic in names:
                listed[names[emitted.topic]].append(emitted.digest)
        missing = [
            f"{len(absent)} of {topic.name}"
            for topic, digests in listed.items() if (absent := await self._fetch(key, pending, topic, digests))
        ]  # fmt: skip
        branches: dict[Branch, BranchRecord] = {}
        if BRANCHES in self._wanted:
            branches, absent_branches = await self._branches(key, pending)
            missing += [f"{absent_branches} of {BRANCHES.name}"] if absent_branches else []
        if len(pending.evidence) < closing.records:
            missing.append(f"{closing.records - len(pending.evidence)} of {EVIDENCE.name}")
        if missing:
            pending.rows.clear()  # nothing more will come of it now: only where it begins matters
            pending.branches.clear()
            return Incomplete(rollout_id, ", ".join(missing))
        whole = self._whole(rollout_id, closing, listed, pending, branches)
        labels = await self._labels_of(key)
        del self._pending[key]
        self._seen.add(short(key))
        return whole._replace(labels=labels)

    def _whole(
        self, rollout_id: str, closing: AepClosing, listed: Mapping[Topic, list[str]], pending: _Pending,
        branches: Mapping[Branch, BranchRecord],
    ) -> Whole:  # fmt: skip
        values = {topic: [pending.rows[topic.name][digest] for digest in listed[topic]] for topic in listed}
        weight = sum(len(value) for found in values.values() for value in found) + sum(map(len, pending.branches))
        unlisted = sum(len(pending.rows.get(topic.name, {}).keys() - set(listed[topic])) for topic in ROWS)
        return Whole(
            rollout_id,
            closing,
            cast("Ranking", self._codec.decode(RANKINGS, values[RANKINGS][0])),
            {
                topic: tuple(self._codec.decode(topic, value) for value in dict.fromkeys(values[topic]))
                for topic in ROWS if topic in self._wanted
            },
            tuple(branches[branch] for branch in sorted(branches, key=lambda each: each[:2])),
            {_branch_of(record)[0]: record for record in pending.evidence.values()},
            {},
            weight,
            unlisted,
        )  # fmt: skip

    async def _fetch(self, key: bytes, pending: _Pending, topic: Topic, digests: list[str]) -> set[str]:
        """Read a topic until the rollout has its rows; returns those that are not there."""
        absent = set(digests) - pending.rows.get(topic.name, {}).keys()
        while absent and (stored := await self._sources[topic].next()) is not None:
            digest = await self._take(topic, stored)
            if stored.key == key:
                absent.discard(digest)
        return absent

    async def _take(self, topic: Topic, stored: Stored) -> str:
        if stored.value is None or stored.key is None or short(stored.key) in self._seen:
            return ""
        await self._learn(stored)
        digest = sha256(body_of(stored.value)).hexdigest()
        kept = stored.value if topic in self._wanted else b""
        self._of(stored).rows.setdefault(topic.name, {})[digest] = kept
        return digest

    async def _branches(self, key: bytes, pending: _Pending) -> tuple[dict[Branch, BranchRecord], int]:
        """The records of the branches that evidence speaks of, and how many are not there."""
        wanted = {_branch_of(record) for record in pending.evidence.values()}
        found: dict[Branch, BranchRecord] = {}
        for value in pending.branches:
            self._match(value, wanted, found)
        while len(found) < len(wanted) and (stored := await self._sources[BRANCHES].next()) is not None:
            if stored.value is None or stored.key is None or short(stored.key) in self._seen:
                continue
            await self._learn(stored)
            self._of(stored).branches.append(stored.value)
            if stored.key == key:
                self._match(stored.value, wanted, found)
        return found, len(wanted) - len(found)

    def _match(self, value: bytes, wanted: set[Branch], found: dict[Branch, BranchRecord]) -> None:
        try:
            record = cast("BranchRecord", self._codec.decode(BRANCHES, value))
        except DecodeError:
            self.undecodable += 1
            return
        branch = (record.branch_index, record.attempt, record.raw_digest)
        if branch in wanted:
            found[branch] = record

    async def _labels_of(self, key: bytes) -> Mapping[str, str]:
        """The labels of the rollout's opening; the first one counts."""
        source = self._sources.get(LIFECYCLE)
        while source is not None and key not in self._labels and (stored := await source.next()) is not None:
            record = await self._decoded(stored)
            if isinstance(record, Lifecycle) and record.opened is not None and stored.key is not None:
                self._labels.setdefault(stored.key, record.opened.labels)
        return self._labels.pop(key, {})

    # -- records -------------------------------------------------------------------------------------------------------

    def _of(self, stored: Stored) -> _Pending:
        assert stored.key is not None
        pending = self._pending.setdefault(stored.key, _Pending())
        pending.first.setdefault(stored.topic.name, stored.offset)
        return pending

    async def _decoded(self, stored: Stored) -> Record | None:
        try:
            await self._learn(stored)
            return self._codec.decode(stored.topic, stored.value)
        except DecodeError:
            self.undecodable += 1
            return None

    async def _learn(self, stored: Stored) -> None:
        unknown = self._codec.unknown_id(stored.value)
        if unknown is not None:
            await self._codec.learn([unknown])


def short(key: bytes) -> int:
    """A rollout's id in 8 bytes: what a checkpoint remembers of it."""
    return int.from_bytes(sha256(key).digest()[:8], "big")


def _branch_of(record: AepRecord) -> Branch:
    """Which branch evidence speaks of, from its run id: `<rollout>/b<index>/a<attempt>`."""
    _, index, attempt = record.run_id.rsplit("/", 2)
    return int(index[1:]), int(attempt[1:]), record.raw_digest
