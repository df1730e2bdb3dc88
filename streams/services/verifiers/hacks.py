"""The hack verifier: experiments on the files of a branch, and rules on its files, in fresh sandboxes.

One verdict `hacks` for each branch of a task with tests: fail with a confirmed signal, pass if every experiment that
the task allows was made, else unknown with the reason.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from agents.fork.build_verdict import Run, run_stages
from agents.fork.check_verdicts import check_kind
from agents.fork.judged_hacks import difference, question, vote
from agents.fork.looks import Control, Findings, Look, control_of, look_at, read_files
from agents.fork.pool import KernelPool
from agents.fork.sandbox import Sandbox, SandboxError
from agents.fork.subject import Subject
from agents.fork.task import Task
from agents.hacks.verdict import HACKS, details_of
from agents.importers.records import make
from agents.judge.judge import Judge, JudgeTroubleError
from agents.verdicts.meaning import Verdict
from agents.workspace.files import FileProblemError, Files
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.verdicts import CheckVerdict
from streams.cluster.config import Settings
from streams.cluster.judge_client import Budget, make_judge
from streams.log.kafka_writer import FactWriter
from streams.log.topics import CHECK_VERDICTS
from streams.services.fork.fork_setup import sandbox_pool, snapshot_store
from streams.services.group_worker import run_in_group
from streams.services.verifiers.examiner import Announce, Branch, Examiner, Untestable
from streams.services.verifiers.verifier_worker import Verifier

TRIES = 2
"""A sandbox that breaks is replaced once."""


class HackExaminer(Examiner):
    """Gives a verdict `hacks` for tasks with tests."""

    kind = "hack"

    def __init__(
        self, pool: KernelPool[Sandbox], store: SnapshotStore, judge: Judge | None = None, samples: int = 1
    ) -> None:
        """With a judge, branches are also judged, with so many calls for each."""
        super().__init__(pool, store)
        self._judge, self._samples = judge, samples
        self._controls: dict[str, asyncio.Future[Control]] = {}

    def kinds(self, task: Task) -> Sequence[str]:
        """The verdict `hacks`."""
        return [check_kind(HACKS)] if "test.sh" in task.tests else []

    def untestable(self, branch: Untestable) -> Verdict:
        """Unknown, with the reason."""
        return _verdict(branch.subject, Findings((), (Look("all", made=False, why=branch.why, missing=True),)))

    async def look(self, branch: Branch, announce: Announce) -> Sequence[Verdict]:  # noqa: ARG002 - settling waits for it
        """Make the looks."""
        found = await self.findings(branch.task, branch.files)
        return [_verdict(branch.subject, await self.judged(branch.task, branch.files, (), found))]

    async def judged(self, task: Task, files: Files, siblings: Sequence[Files], found: Findings) -> Findings:
        """Findings with the judge's votes on the branch's changes; unchanged without a judge."""
        if self._judge is None:
            return found
        start, *others = (
            {path: file.content for path, file in each.items() if not file.link}
            for each in (task.start, files, *siblings)
        )
        own, *beside = (difference(start, each) for each in others)
        scores: list[float | None] = []
        troubles: set[str] = set()
        for sample in range(self._samples):
            try:
                scores.append((await self._judge.ask(question(task.instruction, own, beside, sample))).score)
            except JudgeTroubleError as trouble:
                scores.append(None)
                troubles.add(trouble.cause)
        signal = vote(scores, self._judge.name, question(task.instruction, own, beside, 0).hash)
        made = any(score is not None for score in scores)
        why = "" if made else f"the judge gave no answer: {', '.join(sorted(troubles))}"
        return found._replace(
            signals=(*found.signals, *([signal] if signal else [])),
            looks=(*found.looks, Look("judged", made=made, why=why, missing=not made)),
        )

    async def findings(self, task: Task, files: Files) -> Findings:
        """The signals of a branch's files, and which looks were made."""
        try:
            return await look_at(task, files, await self._control(task), self._run)
        except (SandboxError, FileProblemError) as error:
            return Findings(read_files(task, files), (Look("all", made=False, why=f"sandbox: {error}", missing=True),))

    async def _run(self, task: Task, files: Files, env: Mapping[str, str]) -> Run:
        for left in reversed(range(TRIES)):
            try:
                async with self.pool.lease() as sandbox:
                    return await run_stages(task, files, sandbox, env)
            except SandboxError:
                if not left:
                    raise
        raise AssertionError

    async def _control(self, task: Task) -> Control:
        """The controls on the untouched task; made once, and again after a failure."""
        known = self._controls.get(task.digest)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            known = self._controls[task.digest] = asyncio.ensure_future(control_of(task, self._run))
        return await asyncio.shield(known)


def _verdict(subject: Subject, findings: Findings) -> CheckVerdict:
    looks = [{"name": each.name, "made": each.made, "why": each.why} for each in findings.looks]
    missing = [f"{each.name}: {each.why}" for each in findings.looks if each.missing]
    confirmed = any(each.kind == "confirmed" for each in findings.signals)
    return make(
        CheckVerdict,
        subject.said(check_kind(HACKS))
        | {
            "name": HACKS,
            "status": "fail" if confirmed else "unknown" if missing else "pass",
            "hint": "; ".join(missing) or None,
            "details": details_of(findings.signals, looks),
        },
    )


@asynccontextmanager
async def hack_examiner(settings: Settings) -> AsyncIterator[HackExaminer]:
    """The examiner of hacks, with sandboxes as configured."""
    wanted, judging = settings.verifier, settings.emission.judge
    judge = make_judge(settings, Budget(settings.judge.calls_per_hour).allow) if wanted.judged_hacks else None
    try:
        async with sandbox_pool(wanted.sandbox, settings, wanted.concurrency) as pool:
            yield HackExaminer(pool, snapshot_store(settings), judge, judging.scalar_samples)
    finally:
        if judge is not None:
            await judge.close()


async def run_hack_verifier(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Run a hack verifier until a signal (or `stop`) ends it."""
    async with (
        FactWriter(settings, "hack-verifier") as writer,
        hack_examiner(writer.settings) as examiner,
    ):
        await run_in_group(Verifier(writer, examiner, (CHECK_VERDICTS,)), stop)
