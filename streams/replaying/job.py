"""One partition replayed: facts folded, records emitted, written, and compared with those that the worker emitted."""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from agents.evidence.signing import SigningKey
from agents.rollouts.decide import ClosingPolicy, decide, pinned_config
from agents.rollouts.emit import BrokenLogError, Emission, emit
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure, RolloutSettled
from schemas.emission import EmissionConfig
from schemas.errors import DecodeError
from streams.counts import Counts
from streams.facts import read_fact, rollout_of_key
from streams.looking.kafka import Span
from streams.replaying.comparing import Comparison, Emitted
from streams.replaying.fold import Fold, Hole
from streams.replaying.logs import FactLog
from streams.replaying.overrides import Overrides
from streams.replaying.reading import in_step
from streams.replaying.targets import Target
from streams.topics import CLOSURES, FACTS, Topic

FOR_EVER = 2**53
"""A time that everything comes before: a bounded log has been read past every deadline."""

NOT_REDACTED = b'"redact":false'


class Job(BaseModel):
    """What to replay, and how: the same for every partition."""

    model_config = ConfigDict(frozen=True)

    directory: Path | None = None
    """The archive; None: the configured cluster."""
    spans: dict[str, dict[int, Span]]
    """By fact topic and partition, which offsets."""
    overrides: tuple[str, ...] = ()
    reclose: bool = False
    evidence: bool = True
    sign: bool = True
    out: Path | None = None
    to_prefix: str | None = None
    verify: bool = False
    lost: dict[str, dict[int, str]] = {}
    """By fact topic and partition, what is known to be gone."""
    formats: tuple[str, ...] = ()
    """What is exported beside the log in `out`."""
    asked: dict[str, str] = {}
    """Which log, and which part of it, in the words of whoever asked."""
    closing: ClosingPolicy | None = None
    """The policy that holds where closings are decided again."""

    @property
    def partitions(self) -> list[int]:
        """All partitions that have facts."""
        return sorted({number for parts in self.spans.values() for number in parts})


class Result(BaseModel):
    """What became of a partition."""

    partition: int
    counts: dict[str, Any]
    records: dict[str, int]
    """By sink, how many."""
    digests: dict[str, str]
    """By sink, one digest of all records, whatever their order."""
    holes: list[Hole]
    open: int
    undecodable: int
    compared: Comparison | None = None
    facts: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = {}
    """CPU seconds by stage."""


async def replay_partition(
    log: FactLog,
    job: Job,
    partition: int,
    target: Target,
    key: SigningKey | None,
    policy: ClosingPolicy,
    say: Callable[[int], None] = lambda _facts: None,
) -> Result:
    """Replay one partition; what it emits goes to `target`."""
    began, cpu = time.monotonic(), time.process_time()
    stages: defaultdict[str, float] = defaultdict(float)
    run = _Run(log, job, partition, policy)
    counts, emitted = Counts(), Emitted(remember=job.verify)
    fold = Fold(log.codec, partition, await run.redacting())
    holes: list[Hole] = []

    async def finish(rollout: Rollout) -> None:
        moment = time.process_time()
        try:
            emission = run.emission(rollout)
        except BrokenLogError as error:
            holes.append(Hole(rollout.rollout_id, (str(error),)))
            return
        stages["emit"] += (then := time.process_time()) - moment
        records = emitted.add(emission, key)
        counts.add(emission)
        stages["sign and digest"] += (moment := time.process_time()) - then
        await target.write(rollout, partition, records)
        stages["write"] += time.process_time() - moment

    async for topic, records in run.facts():
        moment = time.process_time()
        whole = fold.take(topic, records)
        stages["decode and fold"] += time.process_time() - moment
        for rollout in whole:
            await finish(rollout)
        say(len(records))
    if job.reclose:
        for rollout in sorted(fold.remaining(), key=lambda each: each.rollout_id):
            if run.reclosed(rollout):
                await finish(rollout)
    await target.publish(partition)
    lost = {
        name: parts[partition]
        for losses in (job.lost, log.damaged) for name, parts in losses.items() if partition in parts
    }  # fmt: skip
    compared = await emitted.compare(log, partition) if job.verify else None
    stages["read, and the rest"] = time.process_time() - cpu - sum(stages.values())
    return Result(
        partition=partition, counts=counts.plain(), records=dict(sorted(emitted.records.items())),
        digests=emitted.digests(), holes=[*fold.holes(lost), *holes], open=fold.open(), undecodable=fold.undecodable,
        compared=compared, facts=fold.facts, seconds=time.monotonic() - began, stages=dict(stages),
    )  # fmt: skip


class _Run:
    """Reading and emitting under the job's rules."""

    def __init__(self, log: FactLog, job: Job, partition: int, policy: ClosingPolicy) -> None:
        self._log = log
        self._job = job
        self._partition = partition
        self._overrides = Overrides(job.overrides)
        self._policy = self._overrides.policy(policy)
        self._configs: dict[str, EmissionConfig] = {}

    def _blocks(self, topic: Topic) -> AsyncIterator[Any]:
        span = self._job.spans.get(topic.name, {}).get(self._partition, Span(0, 0))
        return self._log.blocks(topic, self._partition, span)

    async def facts(self) -> AsyncIterator[tuple[Topic, Any]]:
        """All facts of the partition; closings only when they are not decided again."""
        wanted = [topic for topic in FACTS if not (self._job.reclose and topic is CLOSURES)]
        async for topic, records in in_step({topic: self._blocks(topic) for topic in wanted}):
            await self._log.learn(records)
            yield topic, records

    async def redacting(self) -> Callable[[str], bool]:
        """Whether the events of a rollout are redacted: as it was pinned, unless it was set.

        Events come before the settling that pins it, so the decisions are looked through first.
        """
        plain: set[str] = set()
        async for records in self._blocks(CLOSURES):
            await self._log.learn(records)
            for record in records:
                if self._job.reclose or NOT_REDACTED in (record.value or b""):
                    self._remember(record, plain)
        said = self._overrides.redact
        return (lambda rollout_id: rollout_id not in plain) if said is None else (lambda _: said)

    def _remember(self, record: Any, plain: set[str]) -> None:
        try:
            rollout_id = rollout_of_key(record.key)
            fact = read_fact(self._log.codec, CLOSURES, record.value, rollout_id)
        except DecodeError:
            return
        if isinstance(fact, Closure) and fact.settled is not None and rollout_id not in self._configs:
            config = pinned_config(fact.settled)
            self._configs[rollout_id] = config
            if not config.redact:
                plain.add(rollout_id)

    def emission(self, rollout: Rollout) -> Emission:
        """What follows from a closed rollout."""
        config = None
        if self._overrides.touches_emission and not self._job.reclose:
            assert rollout.settled is not None
            config = self._overrides.config(pinned_config(rollout.settled))
        return emit(rollout, config, evidence=self._job.evidence)

    def reclosed(self, rollout: Rollout) -> bool:
        """Settle and close a rollout anew; False when nothing in it can be closed."""
        config = self._overrides.config(self._configs.get(rollout.rollout_id, EmissionConfig()))
        if rollout.started_at is None:
            return False
        rollout.date()
        while (decision := decide(rollout, config, self._policy, FOR_EVER, {})) is not None:
            closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
            rollout.add(closure, decision.decided_at_ms, (CLOSURES.name, self._partition, 0))
        return rollout.has_closed_facts()
