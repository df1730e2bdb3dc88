"""The build verifier: runs a task's own tests and criteria on the files of a branch, in fresh sandboxes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agents.criteria.criterion import ALL_TOGETHER
from agents.fork.build_verdict import build_verdict, run_stages, untested
from agents.fork.check_verdicts import check_kind, check_verdicts
from agents.fork.pool import KernelPool
from agents.fork.sandbox import Sandbox, SandboxError
from agents.fork.task import Task
from agents.judge.judge import Judge
from agents.verdicts.meaning import Verdict
from agents.workspace.files import FileProblemError
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.verdicts import BuildVerdict, CheckVerdict
from streams.cluster.config import Settings
from streams.cluster.judge_client import ASKED_BY_US, Budget, make_judge
from streams.log.kafka_writer import FactWriter
from streams.log.topics import BUILD_VERDICTS, CHECK_VERDICTS
from streams.services.fork.fork_setup import sandbox_pool, snapshot_store
from streams.services.group_worker import run_in_group
from streams.services.verifiers.examiner import Announce, Branch, Examiner, Untestable
from streams.services.verifiers.verifier_worker import Verifier

TRIES = 2
"""A sandbox that breaks is replaced once; after a second failure the status is infra_error."""


class BuildExaminer(Examiner):
    """Gives a build verdict for tasks with tests, and a check verdict for each criterion."""

    kind = "build"

    def __init__(self, pool: KernelPool[Sandbox], store: SnapshotStore, judge: Judge | None, announce_s: float) -> None:
        super().__init__(pool, store)
        self._judge = judge
        self._announce_s = announce_s
        self._baselines: dict[str, asyncio.Future[int | None]] = {}

    def kinds(self, task: Task) -> Sequence[str]:
        """The build, and the checks."""
        build = ["build"] if "test.sh" in task.tests else []
        names = [each.name for each in task.braid.criteria]
        return build + [check_kind(name) for name in ([*names, ALL_TOGETHER] if names else [])]

    def untestable(self, branch: Untestable) -> Verdict:
        """Unknown, with the reason."""
        return untested(branch.subject, "unknown", branch.why)

    async def look(self, branch: Branch, announce: Announce) -> Sequence[Verdict]:
        """Test, then check; a test that takes long is announced as running."""
        looking = asyncio.ensure_future(self._look(branch))
        try:
            done, _ = await asyncio.wait([looking], timeout=self._announce_s)
            if not done and "build" in self.kinds(branch.task):
                await announce(untested(branch.subject, "running", "the tests are running"))
            return await looking
        finally:
            looking.cancel()

    async def _look(self, branch: Branch) -> list[Verdict]:
        found: list[Verdict] = []
        if "build" in self.kinds(branch.task):
            found.append(await self._build(branch))
        if branch.task.braid.criteria:
            found += await self._checks(branch)
        return found

    async def _build(self, branch: Branch) -> BuildVerdict:
        baseline = await self._baseline(branch.task)
        for _ in range(TRIES):
            try:
                async with self.pool.lease() as sandbox:
                    verdict = await build_verdict(branch.task, branch.files, sandbox, branch.subject, baseline)
            except SandboxError as error:
                verdict = untested(branch.subject, "infra_error", str(error))
            if verdict.status != "infra_error":
                break
        return verdict

    async def _checks(self, branch: Branch) -> list[CheckVerdict]:
        async with self.pool.lease() as sandbox:
            return await check_verdicts(branch.task, branch.files, sandbox, self._judge, branch.subject)

    async def _baseline(self, task: Task) -> int | None:
        """How many tests the untouched task collects; None if that is not known. Counted once per task."""
        if task.digest not in self._baselines:
            self._baselines[task.digest] = asyncio.ensure_future(self._count(task))
        return await asyncio.shield(self._baselines[task.digest])

    async def _count(self, task: Task) -> int | None:
        try:
            async with self.pool.lease() as sandbox:
                tests = (await run_stages(task, task.start, sandbox)).tests
        except (SandboxError, FileProblemError):
            return None
        return None if tests is None else tests.total


@asynccontextmanager
async def build_examiner(settings: Settings) -> AsyncIterator[BuildExaminer]:
    """The examiner of builds, with sandboxes and the judge as configured."""
    wanted, kind = settings.verifier, settings.emission.judge.kind
    judge = make_judge(settings, Budget(settings.judge.calls_per_hour).allow) if kind in ASKED_BY_US else None
    try:
        async with sandbox_pool(wanted.sandbox, settings, wanted.concurrency) as pool:
            yield BuildExaminer(pool, snapshot_store(settings), judge, wanted.announce_s)
    finally:
        if judge is not None:
            await judge.close()


async def run_build_verifier(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Run a build verifier until a signal (or `stop`) ends it."""
    async with (
        FactWriter(settings, "build-verifier") as writer,
        build_examiner(writer.settings) as examiner,
    ):
        await run_in_group(Verifier(writer, examiner, (BUILD_VERDICTS, CHECK_VERDICTS)), stop)
