"""Partitions of `braid run`: folded by the members of a crew, or in this process."""

from contextlib import closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict

from agents.evidence.signing import SigningKey
from agents.rollouts.policy import ClosingPolicy
from agents.trust.trusted_keys import TrustedKey
from schemas.emission import EmissionConfig
from streams.cluster.config import Settings
from streams.cluster.garbage_collector import no_gc
from streams.cluster.signing_keys import signing_key
from streams.jobs.crew.workplace import Moved, Workplace
from streams.jobs.judge.inline import InlineJudge
from streams.jobs.run.bad_lines import BadLines
from streams.jobs.run.partition_fold import PartitionFold
from streams.jobs.spool import spooled
from streams.jobs.targets import discard_half
from streams.jobs.verdict_trust import VerdictTrust, voucher_key
from streams.log.file_writer import LogWriter
from streams.log.files import LOG
from streams.log.json_lines import SINK_FILES, Outputs
from streams.log.progress import Say, quiet


class RunJob(BaseModel):
    """The settings that every partition of a run shares."""

    model_config = ConfigDict(frozen=True)

    out: Path
    spool: Path
    """The lines by partition; finished partitions leave their JSON lines here."""
    emission: EmissionConfig
    closing: ClosingPolicy
    evidence: bool
    signs: bool
    signs_verdicts: bool
    trusted: dict[str, TrustedKey] | None
    """The keys whose verdicts count; None: all verdicts count."""


class RunResult(BaseModel):
    """The result of a partition."""

    partition: int
    counts: dict[str, Any]
    warnings: int
    first_warning: str
    untrusted: int
    first_untrusted: str


class RunPlace(Workplace[RunResult]):
    """Folds partitions of lines into the log and into JSON lines; `judge` is asked if there is one."""

    def __init__(
        self, job: RunJob, key: SigningKey | None, voucher: SigningKey | None, judge: InlineJudge | None = None,
        say: Say = quiet, partitions: int = 1,
    ) -> None:  # fmt: skip
        self._job = job
        self._key = key
        self._voucher = voucher
        self._judge = judge
        self._say = say
        self._partitions = partitions
        self._log = LogWriter(job.out / LOG)

    async def work(self, partition: int, moved: Moved) -> RunResult:
        """Fold a partition."""
        job = self._job
        with (
            no_gc(),
            Outputs(job.spool / f"sinks-{partition}", SINK_FILES) as outputs,
            closing(BadLines(bad_lines_of(job.spool, partition))) as bad,
        ):
            trust = VerdictTrust(job.trusted, self._voucher)
            fold = PartitionFold(partition, job.emission, job.closing, self._log, outputs, bad, trust)
            fold.fold(spooled(job.spool, partition), moved)
            if self._judge is not None:
                await fold.ask(self._judge, partial(self._say_part, partition))
            fold.close(self._key, evidence=job.evidence)
        self._log.publish(partition=partition)
        (job.spool / f"{partition}").unlink()
        doubted = fold.doubted
        return RunResult(
            partition=partition, counts=fold.counts.members(), warnings=doubted.count, first_warning=doubted.first,
            untrusted=trust.count, first_untrusted=trust.first,
        )  # fmt: skip

    def _say_part(self, partition: int, what: str, share: float) -> None:
        self._say(what, (partition + share) / self._partitions)

    def discard(self, partition: int) -> None:
        """Remove the log files of a partition that is not complete."""
        discard_half(self._job.out, partition)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__(kind, error, trace)


def bad_lines_of(spool: Path, partition: int) -> Path:
    """The file with the bad lines of a partition."""
    return spool / f"bad-{partition}"


def run_place(settings: Settings, given: bytes) -> RunPlace:
    """Open the workplace of a member."""
    job = RunJob.model_validate_json(given)
    key, voucher = signing_key(settings) if job.signs else None, voucher_key(settings, vouches=job.signs_verdicts)
    return RunPlace(job, key, voucher)
