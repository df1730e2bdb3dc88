"""The demo's forks: the sample tasks, four branches each, played by scripts in real sandboxes, and tested in fresh ones."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

from agents.fork.errors import SandboxError
from agents.fork.pool import KernelPool
from agents.fork.runner import BranchResult, Sampling
from agents.fork.sandbox import Sandbox
from agents.fork.snapshot_adapter import SnapshotStore
from agents.fork.task import Task
from agents.fork.task_adapter import SAMPLES, load_task, sample_names
from agents.fork.verify import build_verdict
from agents.verdicts.meaning import build_meaning
from streams.config import Settings
from streams.forking.logs import ForkLog
from streams.forking.run import ForkOptions, models, prepare, sandbox_pool, snapshot_store

BRANCHES = 4
TEMPERATURES = (0.2, 0.5, 0.8, 1.0)
SLOTS = 4
"""Sandboxes at once."""


@dataclass
class Forks:
    """What is known of the demo's forks while they run."""

    now: dict[tuple[str, int], str] = field(default_factory=dict)
    """What each branch does, or how it ended."""
    say: Callable[[str], None] = lambda _line: None
    """Told of every branch that is done."""

    def done(self, task: Task, result: BranchResult, outcome: str) -> None:
        """A branch ended, and its tests said this."""
        why = f" ({result.error})" if result.error else ""
        self.now[task.name, result.branch_index] = f"{result.status}, {outcome}"
        self.say(
            f"{task.name} branch {result.branch_index}: {result.status} after {result.steps} steps{why}; build: {outcome}"
        )


async def run_forks(log: ForkLog, settings: Settings, out: Path, forks: Forks) -> list[str]:
    """Fork every sample task onto the log, with a build verdict for every branch that left a workspace; returns the rollouts."""
    settings = settings.model_copy(update={"fork": settings.fork.model_copy(update={"snapshots": out / "snapshots"})})
    async with AsyncExitStack() as stack:
        try:
            pool = await stack.enter_async_context(sandbox_pool("local", settings, SLOTS))
        except SandboxError as error:
            # The scripts are our own: where the machine allows no namespaces, they may run without.
            forks.say(f"sandboxes without namespaces, for these scripts of ours only: {error}")
            weaker = settings.model_copy(update={"fork": settings.fork.model_copy(update={"isolation": "processes"})})
            pool = await stack.enter_async_context(sandbox_pool("local", weaker, SLOTS))
        names = sample_names()
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(_fork(name, log, settings, pool, forks))
    return names


async def _fork(name: str, log: ForkLog, settings: Settings, pool: KernelPool[Sandbox], forks: Forks) -> None:
    folder = SAMPLES / name
    task = load_task(folder)
    options = ForkOptions(name, branches=BRANCHES, sampling=Sampling(TEMPERATURES))

    def progress(branch: int, what: str) -> None:
        forks.now[name, branch] = what

    async with models(options, folder, settings) as model_for, asyncio.TaskGroup() as verifying:
        fork = await prepare(options, task, model_for, log, pool, settings, progress)
        await fork.runner.open()
        async with aclosing(fork.runner.run(fork.jobs)) as running:
            async for result in running:
                verifying.create_task(_verify(task, result, log, pool, snapshot_store(settings), forks))


async def _verify(
    task: Task, result: BranchResult, log: ForkLog, pool: KernelPool[Sandbox], snapshots: SnapshotStore, forks: Forks
) -> None:
    if result.workspace is None:
        forks.done(task, result, "not tested")
        return
    forks.now[task.name, result.branch_index] = "is tested"
    files = snapshots.load(result.workspace)
    async with pool.lease() as sandbox:
        verdict = await build_verdict(
            task, files, sandbox, rollout_id=task.name, branch_index=result.branch_index, attempt=result.attempt,
            produced_by="demo-build-verifier",
        )  # fmt: skip
    await log.append(verdict)
    counted = f", {verdict.tests.passed} of {verdict.tests.total} tests" if verdict.tests else ""
    forks.done(task, result, f"{build_meaning(verdict).outcome}{counted}")
