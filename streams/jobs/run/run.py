"""`braid run`: the whole job on the embedded log, for people who have files and no broker.

The input is spread over partitions on disk, then processes fold one partition each: memory does not grow with the
input, and the same files give the same bytes for any number of processes. The signed manifest is written last: a killed
run has none, and must be run again.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agents.evidence.signing import SigningKey
from agents.evidence.structure import printable
from agents.formats import FORMATS
from schemas.errors import BraidError
from streams.cluster.config import Settings
from streams.cluster.signing_keys import trusted_verifiers
from streams.jobs.counts import Counts
from streams.jobs.crew.crew import Crew
from streams.jobs.crew.task import Task, run_partitions
from streams.jobs.judge.asker import VOTES_FILE
from streams.jobs.judge.inline import InlineJudge
from streams.jobs.partition_count import PARTITION_BYTES, partitions_for, total_bytes
from streams.jobs.run.bad_lines import BadLines, join_bad_lines
from streams.jobs.run.joined_sinks import JoinedSinks
from streams.jobs.run.run_processes import RunJob, RunPlace, RunResult, bad_lines_of, run_place
from streams.jobs.spool import spread
from streams.jobs.verdict_trust import voucher_key
from streams.log.directory_lock import RUN_LOCK, held
from streams.log.durable_files import PARTIAL
from streams.log.file_writer import SUFFIX
from streams.log.files import LOG, SPOOL
from streams.log.input_lines import SIDECAR, InputError, Rejected, read_lines, require_inputs
from streams.log.json_lines import SINK_FILES
from streams.log.manifest import (
    LOG_MANIFEST,
    ManifestError,
    datasets_of,
    described,
    is_dataset,
    read_manifest,
    require_no_log_of_others,
    seal,
)
from streams.log.progress import Say, quiet

RUN = "run"
"""The kind of a run's manifest."""


class RunError(BraidError):
    """A run that cannot go on."""


class Wanted(NamedTuple):
    """The results of a run in addition to rankings and rows."""

    beside: Sequence[str] = ()
    """Folders in the directory of the results that the caller filled before: the manifest lists their files."""
    formats: Sequence[str] = ()
    """Datasets that the caller makes of the result."""
    evidence: bool = True
    signs_verdicts: bool = False
    """The operator vouches for unsigned verdicts."""


ALL = Wanted()


def run_files(
    files: Sequence[Path], out: Path, settings: Settings, key: SigningKey | None, wanted: Wanted = ALL
) -> Counts:
    """Fold files in this process, for callers without an event loop; see `fold_files`."""
    with Crew(1, run_place) as crew:
        return asyncio.run(fold_files(files, out, settings, key, crew, wanted))


async def fold_files(
    files: Sequence[Path],
    out: Path,
    settings: Settings,
    key: SigningKey | None,
    crew: Crew,
    wanted: Wanted = ALL,
    say: Say = quiet,
    judge: InlineJudge | None = None,
) -> Counts:
    """Fold files into rankings, evidence and training rows under `out`; evidence and manifest are signed with `key`.

    A judge is asked from this process: with one, the crew has no members. Raises RunError if a process ends too early.
    """
    began = time.monotonic()
    require_inputs(files)
    with held(out, RUN_LOCK, "run", InputError):
        _clear(out)
        try:
            with tempfile.TemporaryDirectory(prefix=SPOOL, dir=out) as spool:
                run = _Run(files, out, Path(spool), settings, key, wanted, say, judge)
                run.read()
                sinks = await run.fold(crew)
        except BaseException:
            for path in (out / LOG).glob(f"*/*{PARTIAL}"):
                path.unlink(missing_ok=True)
            raise
        written = [
            *_written(out),
            *(path for name in wanted.beside for path in (out / name).rglob("*") if path.is_file()),
        ]
        listed = described(out, [*written, *_inside(out, files)], sinks)
        seal(out, RUN, listed, key, run.members())
    run.counts.seconds = time.monotonic() - began
    return run.counts


class _Run:
    """A run without its manifest."""

    def __init__(
        self, files: Sequence[Path], out: Path, spool: Path, settings: Settings, key: SigningKey | None, wanted: Wanted,
        say: Say, judge: InlineJudge | None,
    ) -> None:  # fmt: skip
        self._files = files
        self._out = out
        self._spool = spool
        self._key = key
        self._wanted = wanted
        self._say = say
        self._judge = judge
        self._size = total_bytes(files)
        self._partitions = partitions_for(self._size)
        self._job = RunJob(
            out=out, spool=spool, emission=settings.emission, closing=settings.closing, evidence=wanted.evidence,
            signs=key is not None, signs_verdicts=wanted.signs_verdicts, trusted=trusted_verifiers(settings),
        )  # fmt: skip
        self._voucher = voucher_key(settings, vouches=wanted.signs_verdicts)
        self._bytes: list[int] = []
        """For each partition, the length of its lines."""
        self._lines = 0
        self._inputs: list[dict[str, Any]] = []
        self.counts = Counts(out=str(out))

    def read(self) -> None:
        """Spread the lines of all files over partitions."""
        bad = BadLines(bad_lines_of(self._spool, self._partitions))
        refuse = partial(bad.add, is_readable=False)
        say = partial(self._say, "reading")
        self._bytes = spread(
            read_lines(self._files, self._inputs), self._spool, self._partitions, refuse, say, self._size
        )
        bad.close()

    async def fold(self, crew: Crew) -> dict[Path, dict[str, Any]]:
        """Fold all partitions; returns digest and size of each file of JSON lines."""
        results: dict[int, RunResult] = {}
        with JoinedSinks(self._out, SINK_FILES.values(), self._spool) as sinks:

            def done(result: RunResult) -> None:
                results[result.partition] = result
                self._say("folding", len(results) / self._partitions)
                sinks.take(result.partition)

            here = partial(RunPlace, self._job, self._key, self._voucher, self._judge, self._say, self._partitions)
            task = Task(self._job, {}, RunResult, RunError, here)
            self._say("folding", 0.0)
            await run_partitions(crew, task, self._order(), done, lambda _lines: None)
            self._count([results[partition] for partition in range(self._partitions)])
            return sinks.finish()

    def _order(self) -> list[int]:
        """All partitions, the first one last; but one that is much longer than the others comes first."""
        return sorted(range(self._partitions), key=lambda each: (2 * self._bytes[each] // PARTITION_BYTES, -each))

    def _count(self, results: Sequence[RunResult]) -> None:
        counts, rejected = self.counts, Rejected(self._out / SIDECAR)
        join_bad_lines([bad_lines_of(self._spool, number) for number in range(self._partitions + 1)], rejected)
        counts.bad_lines, counts.first_bad = rejected.count, rejected.first
        for result in results:
            counts.include(result.counts)
            counts.warnings += result.warnings
            counts.first_warning = counts.first_warning or result.first_warning
            counts.untrusted += result.untrusted
            counts.first_untrusted = counts.first_untrusted or result.first_untrusted
        counts.judge = None if self._judge is None else self._judge.plain()

    def members(self) -> Mapping[str, Any]:
        """The members of the manifest, in addition to the files."""
        counts = self.counts
        said = {name: value for name, value in counts.plain().items() if name not in ("seconds", "out")}
        return {
            "config_digests": dict(sorted(counts.configs.items())),
            "inputs": {"kind": "lines", "files": self._inputs},
            "counts": said,
            **({"rollouts": sorted(counts.made)} if self._wanted.evidence else {}),
            "formats": list(self._wanted.formats),
        }


def _clear(out: Path) -> None:
    """Remove the results of an earlier run, so that they are not mistaken for those of an interrupted one.

    Raises ManifestError for a log of another command, and for a dataset that no run made, because it would become
    outdated.
    """
    require_no_log_of_others(out)
    made = datasets_of(read_manifest(out))
    for name in FORMATS:
        if name not in made and is_dataset(out / name):
            raise ManifestError(
                f"{out / name} was exported from the results that would be replaced; move it away, or give another directory"
            )
    (out / LOG_MANIFEST).unlink(missing_ok=True)
    for name in SINK_FILES.values():
        (out / name).unlink(missing_ok=True)
    for left in (*out.glob(f"{SPOOL}*"), out / LOG, *(out / name for name in made)):
        shutil.rmtree(left, ignore_errors=True)


def _written(out: Path) -> list[Path]:
    """The files of a run."""
    names = (*SINK_FILES.values(), SIDECAR, VOTES_FILE)
    return [*(out / LOG).glob(f"*/*{SUFFIX}"), *(path for name in names if (path := out / name).is_file())]


def _inside(out: Path, files: Iterable[Path]) -> list[Path]:
    """The files that were read, as far as they lie in the directory of the results."""
    within = (path.resolve() for path in files if path.is_file())
    home = out.resolve()
    return [
        out / path.relative_to(home)
        for path in within
        if path.is_relative_to(home) and printable(str(path)) == str(path)
    ]
