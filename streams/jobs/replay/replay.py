"""`braid replay`: a bounded part of the log folded again, partition by partition, and a manifest that ties both together.

A partition's files appear when it is complete, and its result is noted next to them: a killed replay leaves no partial
file, and resumes with the remaining partitions.
"""

import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from streams.cluster.config import Settings
from streams.cluster.signing_keys import signing_key, trusted_verifiers
from streams.jobs.counts import Counts
from streams.jobs.crew.crew import Crew
from streams.jobs.crew.task import run_partitions
from streams.jobs.errors import ReplayError
from streams.jobs.replay.comparison import Comparison
from streams.jobs.replay.emitted import combined
from streams.jobs.replay.output import Output
from streams.jobs.replay.override_check import require_fitting, require_fitting_log
from streams.jobs.replay.overrides import Overrides
from streams.jobs.replay.partition_job import Job, Result
from streams.jobs.replay.processes import log_of, replay_task, target_of
from streams.jobs.replay.replay_manifest import Repeat, ReplayManifest, repeat_of, seal_replay
from streams.log.fold import Hole
from streams.log.progress import Say, quiet
from streams.log.topics import CLOSURES


@dataclass
class Replayed:
    """The counts of a replay."""

    counts: Counts
    records: dict[str, int]
    digests: dict[str, str]
    holes: list[Hole]
    open: int
    undecodable: int
    compared: Comparison | None
    facts: int
    partitions: int
    resumed: int = 0
    finished: bool = False
    """It was finished already: nothing was done."""
    stages: dict[str, float] = field(default_factory=dict)
    repeat: Repeat | None = None
    """How it compares with the replay whose manifest was given."""

    @property
    def ok(self) -> bool:
        """Whether every closed rollout was made again, and matches if a comparison was requested."""
        return not self.holes and all(each is None or each.ok for each in (self.compared, self.repeat))

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return self.counts.plain() | {
            "open": self.open, "undecodable": self.undecodable, "facts": self.facts, "partitions": self.partitions,
            "resumed": self.resumed, "finished": self.finished, "records": self.records, "digests": self.digests,
            "holes": [hole._asdict() for hole in self.holes],
            "verified": None if self.compared is None else self.compared.model_dump() | {"ok": self.compared.ok},
            "repeat": None if self.repeat is None else self.repeat.model_dump(),
        }  # fmt: skip


async def replay(
    job: Job,
    settings: Settings,
    crew: Crew,
    *,
    resume: bool = False,
    earlier: ReplayManifest | None = None,
    say: Say = quiet,
) -> Replayed:
    """How it compares with the replay whose manifest was given.

    Raises ReplayError when it cannot begin, or a partition fails.
    """
    began = time.monotonic()
    if resume and job.out is None:
        raise ReplayError("--resume needs --out: what is done is noted there")
    if job.sign and (job.evidence or job.out is not None):
        signing_key(settings)  # an unreadable key is reported before anything is changed
    overrides = Overrides(job.overrides)
    if job.reclose:
        decides = {"closing": overrides.policy(settings.closing), "emission": settings.emission}
        job = job.model_copy(update=decides | {"trusted": trusted_verifiers(settings)})
        require_fitting(overrides, settings.emission, "here, for rollouts that never settled")
    if overrides.depends_on_pinned:
        async with log_of(job, settings) as log:
            await require_fitting_log(overrides, log, job.spans.get(CLOSURES.name, {}))
    with Output(job, resume=resume) as output:
        if output.finished is not None:
            replayed = _before(output.finished, str(job.out))
        else:
            replayed = await _replayed(output, settings, crew, began, say)
    if earlier is not None:
        replayed.repeat = repeat_of(earlier, job, replayed.digests)
    return replayed


async def _replayed(output: Output, settings: Settings, crew: Crew, began: float, say: Say) -> Replayed:
    job, results = output.job, dict(output.results)
    # The largest is taken first: a small one at the end keeps no process waiting for long.
    left = sorted((number for number in job.partitions if number not in results), key=job.facts_of)
    total = sum(max(0, span[1] - span[0]) for parts in job.spans.values() for span in parts.values())
    read = sum(result.facts for result in results.values())

    def moved(facts: int) -> None:
        nonlocal read
        read += facts
        say(f"replaying, {len(results)} of {len(job.partitions)} partitions", min(1.0, read / max(1, total)))

    def done(result: Result) -> None:
        results[result.partition] = result
        output.keep(result)

    say("replaying", 0.0)
    await target_of(job, settings).prepare()
    await run_partitions(crew, replay_task(job, settings), left, done, moved)
    replayed = _combined([results[number] for number in sorted(results)], resumed=len(output.results))
    replayed.counts.out = "" if job.out is None else str(job.out)
    if job.out is not None:
        rollouts = sorted(each for result in results.values() for each in result.rollouts)
        outcome = _outcome(replayed) | ({"rollouts": rollouts} if job.evidence else {})
        seal_replay(job, outcome, signing_key(settings) if job.sign else None)
        for name in job.formats:
            # Imported on demand: Parquet is a third of the import time.
            from streams.jobs.export.beside import export_beside

            shutil.rmtree(job.out / name, ignore_errors=True)  # incomplete files of a replay that was interrupted
            await export_beside(job.out, name, settings, say, sign=job.sign)
        output.complete()
    replayed.counts.seconds = time.monotonic() - began
    return replayed


def _outcome(replayed: Replayed) -> dict[str, Any]:
    """The results of a replay, for its manifest."""
    return {
        "records": replayed.records,
        "digests": replayed.digests,
        "holes": [hole._asdict() for hole in replayed.holes],
        "counts": {name: value for name, value in replayed.counts.plain().items() if name not in ("seconds", "out")},
        "facts": replayed.facts,
        "partitions": replayed.partitions,
        "open": replayed.open,
        "undecodable": replayed.undecodable,
        "verified": None if replayed.compared is None else replayed.compared.model_dump(),
    }


def _before(found: ReplayManifest, out: str) -> Replayed:
    """The result in the manifest of a finished replay."""
    known = {each.name for each in fields(Counts)}
    counts = Counts(**{name: value for name, value in found.counts.items() if name in known}, out=out)
    return Replayed(
        counts, found.records, found.digests, found.holes, found.open, found.undecodable, found.verified, found.facts,
        found.partitions, resumed=found.partitions, finished=True,
    )  # fmt: skip


def _combined(results: list[Result], resumed: int) -> Replayed:
    counts = Counts()
    records: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    compared: Comparison | None = None
    for result in results:
        counts.include(result.counts)
        records.update(result.records)
        stages.update({name: round(seconds * 1e6) for name, seconds in result.stages.items()})
        compared = result.compared if compared is None else _both(compared, result.compared)
    return Replayed(
        counts, dict(sorted(records.items())), combined([result.digests for result in results]),
        [hole for result in results for hole in result.holes], sum(result.open for result in results),
        sum(result.undecodable for result in results), compared, sum(result.facts for result in results), len(results),
        resumed, stages={name: micros / 1e6 for name, micros in stages.items()},
    )  # fmt: skip


def _both(one: Comparison, other: Comparison | None) -> Comparison:
    if other is None:
        return one
    summed = {name: getattr(one, name) + getattr(other, name) for name in Comparison.model_fields}
    return Comparison(**summed)
