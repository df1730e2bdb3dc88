"""The demo's forks: the sample tasks, four branches each, played by scripts in real sandboxes."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

from agents.fork.pool import KernelPool
from agents.fork.runner import BranchResult, Sampling
from agents.fork.sandbox import Sandbox, SandboxError
from agents.fork.task import Task
from agents.fork.task_adapter import SAMPLES, load_task, sample_names
from agents.verdicts.meaning import Verdict
from agents.workspace.snapshot import TakenOf
from streams.cluster.config import Settings
from streams.services.fork.fork_setup import ForkOptions, models, prepare, sandbox_pool
from streams.services.fork.logs import ForkLog
from streams.services.verifiers.log_verifier import LogVerifier, log_verifier, run_verified
from streams.views.fork_board import in_words

SNAPSHOTS = "snapshots"
"""The folder in which the demo stores the workspaces of its branches."""

BRANCHES = 4
TEMPERATURES = (0.2, 0.5, 0.8, 1.0)
SLOTS = 4
"""Sandboxes at once."""


@dataclass
class Forks:
    """The state of the demo's forks while they run."""

    now: dict[tuple[str, int], str] = field(default_factory=dict)
    """The last act of each branch, or how it ended."""
    results: dict[tuple[str, int], BranchResult] = field(default_factory=dict)
    """How branches ended."""
    say: Callable[[str], None] = lambda _line: None
    """Called for every finished branch."""

    def ended(self, task: Task, result: BranchResult) -> None:
        """Note that a branch ended; its verdicts come next, if it has files to test."""
        self.results[task.name, result.branch_index] = result
        if result.workspace is None:
            self.done(task.name, result, ["not tested"])
        else:
            self.now[task.name, result.branch_index] = f"{result.status}, is tested"

    def done(self, name: str, result: BranchResult, verdicts: Sequence[str]) -> None:
        """Print the result of a branch."""
        why = f" ({result.error})" if result.error else ""
        said = "; ".join(verdicts)
        self.now[name, result.branch_index] = f"{result.status}, {said}"
        self.say(f"{name} branch {result.branch_index}: {result.status} after {result.steps} steps{why}; {said}")


async def usable(settings: Settings, out: Path, say: Callable[[str], None]) -> Settings:
    """Settings whose sandboxes work here, with the demo's own place for snapshots, and trust in this machine's verifiers only."""
    fork = settings.fork.model_copy(update={"snapshots": (out / SNAPSHOTS).resolve()})
    settings = settings.model_copy(update={"fork": fork, "trusted_verifiers": "local"})
    try:
        async with sandbox_pool("local", settings, 1):
            return settings
    except SandboxError as error:
        # The scripts are our own: where the machine allows no namespaces, they may run without.
        say(f"sandboxes without namespaces, for these scripts of ours only: {error}")
        return settings.model_copy(update={"fork": fork.model_copy(update={"isolation": "processes"})})


async def run_forks(log: ForkLog, settings: Settings, forks: Forks, *, verify: bool = False) -> list[str]:
    """Fork every sample task onto the log; `verify` looks at each branch here, for a log without consumers. Returns the rollouts."""
    names = sample_names()
    tasks = [load_task(SAMPLES / name) for name in names]
    async with AsyncExitStack() as stack:
        wide = settings.model_copy(update={"verifier": settings.verifier.model_copy(update={"concurrency": SLOTS})})
        verifier = await stack.enter_async_context(log_verifier(log, wide, tasks)) if verify else None
        pool = await stack.enter_async_context(sandbox_pool("local", settings, SLOTS))
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(_fork(task, log, settings, pool, forks, verifier))
    return names


async def _fork(
    task: Task,
    log: ForkLog,
    settings: Settings,
    pool: KernelPool[Sandbox],
    forks: Forks,
    verifier: LogVerifier | None,
) -> None:
    name = task.name
    options = ForkOptions(name, branches=BRANCHES, sampling=Sampling(TEMPERATURES))

    def progress(branch: int, what: str) -> None:
        forks.now[name, branch] = what

    def told(place: TakenOf, verdicts: Sequence[Verdict]) -> None:
        forks.done(name, forks.results[name, place.branch_index], [in_words(verdict) for verdict in verdicts])

    async with models(options, SAMPLES / name, settings) as model_for:
        fork = await prepare(options, task, model_for, log, pool, settings, progress)
        await fork.runner.open()
        async with aclosing(run_verified(fork, task, verifier, told)) as running:
            async for result in running:
                forks.ended(task, result)
