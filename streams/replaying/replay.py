"""`braid replay`: a bounded part of the log folded again, partition by partition, and a manifest that ties both together.

A partition's files appear when it is complete, and its result is noted beside them: what was killed leaves no half file, and
is resumed with the partitions that are left.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from schemas.versions import RECORDS, latest
from streams.config import Settings
from streams.counts import Counts
from streams.embedded import SUFFIX
from streams.exporting.shards import write_whole
from streams.letters import CODE_VERSION
from streams.replaying.comparing import Comparison, combined
from streams.replaying.fold import Hole
from streams.replaying.job import Job, Result
from streams.replaying.logs import MANIFEST
from streams.replaying.output import REPLAY, Notes
from streams.replaying.processes import run_partitions
from streams.replaying.targets import LOG

Say = Callable[[str, float], None]


@dataclass
class Replayed:
    """What a replay did."""

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
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether everything that closed was made again, and is as it was where that was asked."""
        return not self.holes and (self.compared is None or self.compared.ok)

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return self.counts.plain() | {
            "open": self.open, "undecodable": self.undecodable, "facts": self.facts, "partitions": self.partitions,
            "resumed": self.resumed, "records": self.records, "digests": self.digests,
            "holes": [hole._asdict() for hole in self.holes],
            "verified": None if self.compared is None else self.compared.model_dump() | {"ok": self.compared.ok},
        }  # fmt: skip


async def replay(
    job: Job, settings: Settings, processes: int, *, resume: bool = False, say: Say = lambda _what, _share: None
) -> Replayed:
    """Replay everything that the job names. Raises ReplayError when it cannot begin, or a partition fails."""
    began = time.monotonic()
    notes = Notes(job, resume=resume)
    job = notes.job
    results = dict(notes.results)
    left = [number for number in job.partitions if number not in results]
    total = sum(max(0, span[1] - span[0]) for parts in job.spans.values() for span in parts.values())
    read = sum(result.facts for result in results.values())

    def moved(facts: int) -> None:
        nonlocal read
        read += facts
        say(f"replaying, {len(results)} of {len(job.partitions)} partitions", min(1.0, read / max(1, total)))

    def done(result: Result) -> None:
        results[result.partition] = result
        notes.keep(result)

    say("replaying", 0.0)
    await run_partitions(job, settings, left, processes, done, moved)
    replayed = _combined([results[number] for number in sorted(results)], resumed=len(notes.results))
    replayed.counts.out = "" if job.out is None else str(job.out)
    replayed.counts.seconds = time.monotonic() - began
    if job.out is not None:
        _write_manifest(job, replayed)
        notes.clear()
    return replayed


def _combined(results: list[Result], resumed: int) -> Replayed:
    counts, rejected = Counts(), Counter[str]()
    records: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    compared: Comparison | None = None
    for result in results:
        for name, value in result.counts.items():
            if isinstance(value, int):
                setattr(counts, name, getattr(counts, name) + value)
        rejected.update(result.counts["rejected"])
        records.update(result.records)
        stages.update({name: round(seconds * 1e6) for name, seconds in result.stages.items()})
        compared = result.compared if compared is None else _both(compared, result.compared)
    counts.rejected = dict(sorted(rejected.items()))
    return Replayed(
        counts, dict(sorted(records.items())), combined([result.digests for result in results]),
        [hole for result in results for hole in result.holes], sum(result.open for result in results),
        sum(result.undecodable for result in results), compared, sum(result.facts for result in results), len(results),
        resumed, {name: micros / 1e6 for name, micros in stages.items()},
    )  # fmt: skip


def _both(one: Comparison, other: Comparison | None) -> Comparison:
    if other is None:
        return one
    summed = {name: getattr(one, name) + getattr(other, name) for name in Comparison.model_fields}
    return Comparison(**summed)


def _write_manifest(job: Job, replayed: Replayed) -> None:
    """What was read, under which rules, and what came of it: enough to do it again elsewhere and compare."""
    assert job.out is not None
    files = {
        str(path.relative_to(job.out)): sha256(path.read_bytes()).hexdigest()
        for path in sorted((job.out / LOG).glob(f"*/*{SUFFIX}"))
    }
    manifest = {
        "kind": REPLAY,
        "code_version": CODE_VERSION,
        "schema_versions": {name: latest(record).number for name, record in sorted(RECORDS.items())},
        "inputs": {
            "kind": "kafka" if job.directory is None else "files",
            "topics": {name: {str(at): list(span) for at, span in parts.items()} for name, parts in job.spans.items()},
        },
        "rules": {"set": list(job.overrides), "reclose": job.reclose, "evidence": job.evidence, "sign": job.sign},
        "records": replayed.records,
        "digests": replayed.digests,
        "holes": [hole._asdict() for hole in replayed.holes],
        "counts": {name: value for name, value in replayed.counts.plain().items() if name not in ("seconds", "out")},
        "files": files,
    }
    write_whole(job.out / MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n")
