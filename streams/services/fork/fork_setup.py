"""One fork from its options: a new rollout, a resumed one, or one that begins in the middle of another."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from agents.fork.budget import Budgets
from agents.fork.fork_error import ForkError
from agents.fork.history import History, Job, prefix_of, read_place, unfinished
from agents.fork.pool import KernelPool
from agents.fork.runner import ForkRunner, Progress, Sampling, opening
from agents.fork.sandbox import Sandbox
from agents.fork.task import Task
from agents.hacks.verdict import HACKS
from agents.memory.memory import Found, with_experience
from agents.models.model import Model
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.events import AgentEvent
from schemas.extras import needs, require
from schemas.lifecycle import RolloutOpened
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.cluster.model_client import open_model
from streams.services.fork.logs import ForkLog

if TYPE_CHECKING:
    from agents.fork.local_adapter import LocalSandboxes

ModelKind = Literal["scripted", "anthropic", "openai"]
SandboxKind = Literal["local", "e2b"]

SPARE_MS = 600_000
"""A rollout's deadline allows for its verdicts: this long after its branches must be done."""


class ForkOptions(NamedTuple):
    """The user's choices."""

    rollout_id: str
    branches: int = 8
    sampling: Sampling = Sampling()
    budgets: Budgets = Budgets()
    model: ModelKind = "scripted"
    script: Path | None = None
    """The file of the scripted model; by default the task's own."""
    resume: bool = False
    fork_from: str = ""
    memories: tuple[Found, ...] = ()
    """Past experience that is shown to the agents."""


class Sandboxes(Protocol):
    """A source of sandboxes."""

    async def create(self) -> Sandbox:
        """An empty one."""

    async def close(self) -> None:
        """No more are needed."""


@asynccontextmanager
async def sandbox_pool(kind: SandboxKind, settings: Settings, size: int) -> AsyncIterator[KernelPool[Sandbox]]:
    """Sandboxes as configured; all of them are gone at the end."""
    sandboxes: Sandboxes
    if kind == "e2b":
        with needs("fork", "--sandbox e2b"):
            from agents.fork.e2b_adapter import E2bOptions, E2bSandboxes

        sandboxes = E2bSandboxes(E2bOptions(template=settings.fork.e2b_template))
    else:
        sandboxes = await local_sandboxes(settings, sandbox_dir(settings))
    pool = KernelPool(sandboxes.create, size)
    try:
        yield pool
    finally:
        await asyncio.shield(_close(pool, sandboxes))


async def local_sandboxes(settings: Settings, folder: Path) -> "LocalSandboxes":
    """Sandboxes on this machine. Raises SandboxError when they do not work here, MissingExtraError where tests could not run."""
    require("fork", "a local sandbox", "pytest")  # else tests would fail that never ran
    from agents.fork.local_adapter import LocalSandboxes
    from agents.fork.sandbox_adapter import LocalOptions

    fork = settings.fork
    return await LocalSandboxes.open(folder, LocalOptions(fork.isolation, fork.workspace_mb, fork.first_uid))


async def _close(pool: KernelPool[Sandbox], sandboxes: Sandboxes) -> None:
    await pool.close()
    await sandboxes.close()


def sandbox_dir(settings: Settings) -> Path:
    """The folder of local sandboxes."""
    return settings.fork.sandboxes or (settings.state_dir or places.state_dir()) / "sandboxes"


def snapshot_store(settings: Settings) -> SnapshotStore:
    """The store of workspace snapshots."""
    return SnapshotStore(settings.fork.snapshots or (settings.state_dir or places.state_dir()) / "snapshots")


@asynccontextmanager
async def models(options: ForkOptions, folder: Path, settings: Settings) -> AsyncIterator[Callable[[int], Model]]:
    """The model of each branch. Raises ForkError or ModelSetupError if it cannot be called."""
    if options.model == "scripted":
        from agents.models.scripted_adapter import SCRIPT, ScriptedModel, read_script

        script = read_script(options.script or folder / SCRIPT)
        yield lambda branch: ScriptedModel(script, branch)
        return
    if not settings.fork.model:
        raise ForkError("no model: give --model-name, or set fork.model (BRAID_FORK__MODEL)")
    shared = open_model(options.model, settings.fork.model, settings.fork.service())
    try:
        yield lambda _branch: shared
    finally:
        await shared.close()


@dataclass
class Fork:
    """A fork that is ready to run: what is on the log, and what remains."""

    runner: ForkRunner
    jobs: list[Job]
    is_new: bool
    history: History


async def prepare(
    options: ForkOptions, task: Task, model_for: Callable[[int], Model], log: ForkLog, pool: KernelPool[Sandbox], settings: Settings,
    progress: Progress = lambda _branch, _what: None,
) -> Fork:  # fmt: skip
    """Read the log, and decide what to run. Nothing is written yet. Raises ForkError."""
    history = await log.history(options.rollout_id)
    sampling = options.sampling
    if options.resume:
        jobs = unfinished(history, options.rollout_id)
        assert history.opened is not None
        opened = history.opened
        _same_task(opened, task)
        sampling, fork_from = _sampling_of(opened), opened.labels.get("fork_from", "")
    elif history.opened is not None or history.attempts:
        raise ForkError(f"{log.place} has a rollout {options.rollout_id} already: choose another --id, or --resume it")
    else:
        opened, fork_from = _opening(options, task, settings), options.fork_from
        jobs = [Job(branch) for branch in range(options.branches)]
    runner = ForkRunner(
        task=task, opened=opened, model_for=model_for, pool=pool, log=log,
        snapshots=snapshot_store(settings), clock=lambda: time.time_ns() // 1_000_000, budgets=options.budgets,
        sampling=sampling, prefix=await _prefix(fork_from, task, log), redacting=settings.emission.redact, progress=progress,
    )  # fmt: skip
    return Fork(runner, jobs, not options.resume, history)


def _opening(options: ForkOptions, task: Task, settings: Settings) -> RolloutOpened:
    labels = {
        "temperatures": ",".join(f"{value:g}" for value in options.sampling.temperatures),
        "seed": "" if options.sampling.seed is None else str(options.sampling.seed),
        "fork_from": options.fork_from,
    }
    total_s = options.budgets.total_s or options.budgets.branch_s * options.branches
    deadline_ms = round(total_s * 1000) + SPARE_MS
    opened = opening(
        task, options.rollout_id, options.branches, {name: text for name, text in labels.items() if text}, deadline_ms
    )
    return opened.model_copy(
        update={
            "system_prompt": with_experience(opened.system_prompt or "", options.memories),
            "memories": tuple(found.memory.id for found in options.memories),
            "awaited": (HACKS,) if settings.verifier.anti_manipulation and "test.sh" in task.tests else (),
        }
    )


def _sampling_of(opened: RolloutOpened) -> Sampling:
    """The differences between the branches of a rollout on the log: resumed branches get the values they had."""
    given, seed = opened.labels.get("temperatures", ""), opened.labels.get("seed", "")
    return Sampling(tuple(float(each) for each in given.split(",")) if given else (), int(seed) if seed else None)


def _same_task(opened: RolloutOpened, task: Task) -> None:
    if opened.labels.get("task_digest") != task.digest:
        raise ForkError(
            f"rollout {opened.rollout_id} was forked from task {opened.labels.get('task', 'unknown')} "
            f"({opened.labels.get('task_digest', 'no digest')[:12]}), this is {task.name} ({task.digest[:12]})"
        )


async def _prefix(fork_from: str, task: Task, log: ForkLog) -> tuple[AgentEvent, ...]:
    if not fork_from:
        return ()
    place = read_place(fork_from)
    history = await log.history(place.rollout_id)
    if history.opened is not None:
        _same_task(history.opened, task)
    return prefix_of(history, place)
