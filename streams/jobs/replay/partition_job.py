"""One partition replayed: facts folded, records emitted, written, and compared with those of the worker."""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from agents.evidence.signing import SigningKey
from agents.redaction.redaction import RULES_VERSION
from agents.rollouts.policy import ClosingPolicy
from agents.trust.trusted_keys import TrustedKey
from schemas.emission import EmissionConfig
from streams.jobs.replay.comparison import SINKS, Comparison, compare
from streams.jobs.replay.lookahead import Ahead
from streams.jobs.replay.overrides import Overrides
from streams.jobs.replay.reclosed_fold import Reclosing
from streams.jobs.replay.remake import Making, Rules
from streams.jobs.targets import Target
from streams.log.container import partitions_of
from streams.log.files import log_folder
from streams.log.fold import Fold, Hole
from streams.log.interleaving import Order, in_step, in_turn, partition_blocks
from streams.log.letters import CODE_VERSION
from streams.log.losses import both
from streams.log.reader import LogReader
from streams.log.record import NOTHING, LogRecord, Span
from streams.log.topics import CLOSURES, FACTS, Topic

NOT_REDACTED = b'"redact":false'


class Job(BaseModel):
    """The order to replay a partition: the same for every partition."""

    model_config = ConfigDict(frozen=True)

    directory: Path | None = None
    """The archive; None: the configured cluster."""
    unfinished: bool = False
    """Whether an archive is read although it was not finished, or has lost files since."""
    spans: dict[str, dict[int, Span]]
    """By fact topic and partition, the offsets."""
    overrides: tuple[str, ...] = ()
    reclose: bool = False
    evidence: bool = True
    sign: bool = True
    out: Path | None = None
    to_prefix: str | None = None
    verify: bool = False
    lost: dict[str, dict[int, str]] = {}
    """By fact topic and partition, known losses."""
    formats: tuple[str, ...] = ()
    """The datasets that are exported next to the log in `out`."""
    asked: dict[str, str] = {}
    """The log, and the part of it, in the words of the caller."""
    closing: ClosingPolicy | None = None
    """The policy for closings that are decided again."""
    emission: EmissionConfig | None = None
    """The configuration for rollouts that never settled, if closings are decided again."""
    trusted: dict[str, TrustedKey] | None = None
    """The keys whose verdicts count there; None: all verdicts count."""
    code: str = CODE_VERSION
    redaction: str = RULES_VERSION
    """The settings that make it: partitions that another version made are not completed by this one."""

    @property
    def signs(self) -> bool:
        """Whether evidence is signed. Whether evidence is signed: not if nothing is stored, because digests and
        comparisons leave signatures out.
        """
        return self.sign and self.evidence and (self.out is not None or self.to_prefix is not None)

    @property
    def partitions(self) -> list[int]:
        """All partitions that have facts; if sinks are compared, also those with sink records only."""
        found = {number for parts in self.spans.values() for number in parts}
        if self.verify and self.directory is not None:
            folder = log_folder(self.directory)
            found |= {number for topic in SINKS for number in partitions_of(folder, topic.name)}
        return sorted(found)

    def facts_of(self, partition: int) -> int:
        """How many offsets of a partition are read."""
        spans = (parts.get(partition, NOTHING) for parts in self.spans.values())
        return sum(max(0, span.end - span.start) for span in spans)


class Result(BaseModel):
    """The outcome of a partition."""

    partition: int
    counts: dict[str, Any]
    records: dict[str, int]
    """The number of records of each sink."""
    digests: dict[str, str]
    """By sink, one digest of all records, whatever their order."""
    holes: list[Hole]
    open: int
    undecodable: int
    compared: Comparison | None = None
    facts: int = 0
    rollouts: list[str] = []
    """Ids of the rollouts that were made."""
    seconds: float = 0.0
    stages: dict[str, float] = {}
    """CPU seconds by stage."""


async def replay_partition(
    log: LogReader,
    job: Job,
    partition: int,
    target: Target,
    key: SigningKey | None,
    say: Callable[[int], None] = lambda _facts: None,
) -> Result:
    """Replay one partition; its output goes to `target`."""
    began, cpu = time.monotonic(), time.process_time()
    folding = writing = 0.0
    run = _Run(log, job, partition)
    fold = await run.fold()
    making = Making(run.rules, run.ahead, key, partition, remember=job.verify)
    async for topic, records in run.facts():
        moment = time.process_time()
        whole = fold.take(topic, records)
        folding += time.process_time() - moment
        for rollout in whole:
            if made := making.make(rollout):
                moment = time.process_time()
                await target.write(rollout, made, partition)
                writing += time.process_time() - moment
        say(len(records))
    holes = [*fold.holes(_lost(job, log, partition)), *sorted(making.broken)]
    await target.publish(partition)
    compared = None
    if job.verify:
        decisions = job.spans.get(CLOSURES.name, {}).get(partition, NOTHING)
        compared = await compare(making.emitted, log, partition, decisions, {hole.rollout_id for hole in holes})
    stages = {
        "decode and fold": folding, "emit": making.emitting, "sign and digest": making.signing, "write": writing,
    }  # fmt: skip
    stages["read, and the rest"] = time.process_time() - cpu - sum(stages.values())
    return Result(
        partition=partition, counts=making.counts.plain(), records=making.emitted.records(),
        digests=making.emitted.digests(), holes=holes, open=fold.open() + making.undecided, undecodable=fold.undecodable,
        compared=compared, facts=fold.facts, seconds=time.monotonic() - began, stages=stages,
        rollouts=[] if job.out is None else making.counts.made,
    )  # fmt: skip


def _lost(job: Job, log: LogReader, partition: int) -> dict[str, str]:
    """By fact topic, the losses of a partition: those known before, and those found by reading it."""
    lost: dict[str, str] = {}
    for losses in (job.lost, log.damaged):
        for topic in FACTS:
            what = losses.get(topic.name, {}).get(partition)
            if what is not None:
                lost[topic.name] = both(lost[topic.name], what) if topic.name in lost else what
    return lost


class _Run:
    """A partition read under the job's rules."""

    def __init__(self, log: LogReader, job: Job, partition: int) -> None:
        self._log = log
        self._job = job
        self._partition = partition
        self.ahead = Ahead(log.codec)
        self.rules = Rules(
            overrides=Overrides(job.overrides),
            reclose=job.reclose,
            policy=job.closing or ClosingPolicy(),
            unpinned=job.emission or EmissionConfig(),
            evidence=job.evidence,
        )

    def facts(
        self, topics: Iterable[Topic] = FACTS, order: Order = in_step
    ) -> AsyncIterator[tuple[Topic, list[LogRecord]]]:
        """The facts of the partition."""
        return partition_blocks(self._log, self._partition, topics, self._job.spans, order)

    async def fold(self) -> Fold:
        """The fold that the facts go into; facts that it needs first are read first."""
        reclose = self.rules.reclose
        if reclose or self.rules.overrides.redact is None:
            async for _, records in self.facts((CLOSURES,)):
                for record in records:
                    if reclose or NOT_REDACTED in (record.value or b""):
                        self.ahead.decide(record)
        if not reclose:
            return Fold(self._log.codec, self._partition, self._redacts)
        async for _, records in self.facts([topic for topic in FACTS if topic is not CLOSURES], in_turn):
            self.ahead.count(records)
        lost = _lost(self._job, self._log, self._partition)
        return Reclosing(self._log.codec, self._partition, self._redacts, self.ahead.records, lost, self._job.trusted)

    def _redacts(self, rollout_id: str) -> bool:
        """Whether the events of a rollout are redacted: as it was pinned, unless it was set."""
        said = self.rules.overrides.redact
        return self.ahead.configs.get(rollout_id, self.rules.unpinned).redact if said is None else said
