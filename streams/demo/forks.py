"""The demo's forks: the sample tasks, four branches each, played by scripts in real sandboxes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from agents.fork.browser_adapter import find_browser
from agents.fork.build_verdict import build_verdict
from agents.fork.pool import KernelPool
from agents.fork.runner import BranchResult, Sampling
from agents.fork.sandbox import Sandbox, SandboxError
from agents.fork.subject import Subject, about_of
from agents.fork.task import Task
from agents.fork.task_adapter import SAMPLES, load_task, sample_names
from agents.fork.visual_verdict import unseen, visual_verdict
from agents.verdicts.meaning import CURRENT, kind_of, meaning
from agents.workspace.files import Files
from schemas.verdicts import BuildVerdict, VisualVerdict
from streams.cluster.config import Settings
from streams.services.fork.fork_setup import ForkOptions, models, prepare, sandbox_pool, snapshot_store
from streams.services.fork.logs import ForkLog

SNAPSHOTS = "snapshots"
"""Where the demo keeps the workspaces of its branches."""

BRANCHES = 4
TEMPERATURES = (0.2, 0.5, 0.8, 1.0)
SLOTS = 4
"""Sandboxes at once."""

Look = Callable[[Task, Files, KernelPool[Sandbox], Subject], AsyncIterator[BuildVerdict | VisualVerdict]]
"""Who gives verdicts in this process; nobody does where verifiers run as processes of their own."""


@dataclass
class Forks:
    """What is known of the demo's forks while they run."""

    now: dict[tuple[str, int], str] = field(default_factory=dict)
    """What each branch does, or how it ended."""
    results: dict[tuple[str, int], BranchResult] = field(default_factory=dict)
    """How branches ended."""
    say: Callable[[str], None] = lambda _line: None
    """Told of every branch that is done."""

    def ended(self, task: Task, result: BranchResult) -> None:
        """A branch ended; its verdicts come next, if it left anything to look at."""
        self.results[task.name, result.branch_index] = result
        if result.workspace is None:
            self.done(task.name, result, ["not tested"])
        else:
            self.now[task.name, result.branch_index] = f"{result.status}, is tested"

    def done(self, name: str, result: BranchResult, verdicts: Sequence[str]) -> None:
        """All that there is to say about a branch."""
        why = f" ({result.error})" if result.error else ""
        said = "; ".join(verdicts)
        self.now[name, result.branch_index] = f"{result.status}, {said}"
        self.say(f"{name} branch {result.branch_index}: {result.status} after {result.steps} steps{why}; {said}")


async def usable(settings: Settings, out: Path, say: Callable[[str], None]) -> Settings:
    """Settings whose sandboxes work here, with the demo's own place for snapshots."""
    fork = settings.fork.model_copy(update={"snapshots": (out / SNAPSHOTS).resolve()})
    settings = settings.model_copy(update={"fork": fork})
    try:
        async with sandbox_pool("local", settings, 1):
            return settings
    except SandboxError as error:
        # The scripts are our own: where the machine allows no namespaces, they may run without.
        say(f"sandboxes without namespaces, for these scripts of ours only: {error}")
        return settings.model_copy(update={"fork": fork.model_copy(update={"isolation": "processes"})})


async def run_forks(log: ForkLog, settings: Settings, forks: Forks, look: Look | None = None) -> list[str]:
    """Fork every sample task onto the log; `look` is asked for the verdicts of each branch. Returns the rollouts."""
    names = sample_names()
    async with sandbox_pool("local", settings, SLOTS) as pool, asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_fork(name, log, settings, pool, forks, look))
    return names


async def _fork(
    name: str, log: ForkLog, settings: Settings, pool: KernelPool[Sandbox], forks: Forks, look: Look | None
) -> None:
    folder = SAMPLES / name
    task = load_task(folder)
    options = ForkOptions(name, branches=BRANCHES, sampling=Sampling(TEMPERATURES))

    def progress(branch: int, what: str) -> None:
        forks.now[name, branch] = what

    async with models(options, folder, settings) as model_for, asyncio.TaskGroup() as looking:
        fork = await prepare(options, task, model_for, log, pool, settings, progress)
        await fork.runner.open()
        async with aclosing(fork.runner.run(fork.jobs)) as running:
            async for result in running:
                forks.ended(task, result)
                if look is not None and result.workspace is not None:
                    looking.create_task(_looked_at(task, result, log, pool, settings, forks, look))


async def _looked_at(
    task: Task,
    result: BranchResult,
    log: ForkLog,
    pool: KernelPool[Sandbox],
    settings: Settings,
    forks: Forks,
    look: Look,
) -> None:
    assert result.workspace is not None
    about = about_of(task.digest, result.workspace.digest)
    subject = Subject(task.name, result.branch_index, result.attempt, "demo-verifier", about)
    verdicts = []
    async for verdict in look(task, snapshot_store(settings).load(result.workspace), pool, subject):
        await log.append(verdict)
        verdicts.append(verdict)
    forks.done(task.name, result, [in_words(verdict) for verdict in verdicts])


async def look_here(
    task: Task, files: Files, pool: KernelPool[Sandbox], subject: Subject
) -> AsyncIterator[BuildVerdict | VisualVerdict]:
    """The verdicts that a build and a visual verifier would give, in this process: for a log without consumers."""
    async with pool.lease() as sandbox:
        yield await build_verdict(task, files, sandbox, subject)
    if task.braid.page is not None:
        browser = find_browser()
        if isinstance(browser, str):
            yield unseen(subject, browser)
            return
        async with pool.lease() as sandbox:
            yield await visual_verdict(task, task.braid.page, files, sandbox, browser, subject)


def in_words(verdict: BuildVerdict | VisualVerdict) -> str:
    """A verdict on one line."""
    said = f"{kind_of(verdict)}: {meaning(verdict, CURRENT).outcome}"
    if isinstance(verdict, BuildVerdict):
        return f"{said}, {verdict.tests.passed} of {verdict.tests.total} tests" if verdict.tests else said
    return f"{said} ({verdict.reason})" if verdict.reason else said
