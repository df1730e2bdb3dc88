"""The fork runner: opens a rollout on the log, runs its branches in sandboxes side by side, and ends every one with a status.

The rollout is on the log before any branch starts, every turn before the next. A runner that is killed loses at most
the turn in flight: `unfinished` lists the remaining branches, and those run again as new attempts.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from agents.fork.agent import Agent, Ending
from agents.fork.budget import Budgets, Spent
from agents.fork.history import Job
from agents.fork.log import Log
from agents.fork.pool import KernelPool
from agents.fork.prefix import read_prefix, replay
from agents.fork.recorder import Clock, Recorder
from agents.fork.sandbox import Limits, Sandbox, SandboxError
from agents.fork.task import Task
from agents.fork.tools import DEFINITIONS, SUMMARIES, Tools
from agents.models.model import Model, TokenUsage
from agents.summarize.branch import ToolLimits
from agents.workspace.files import FileProblemError, Files
from agents.workspace.snapshot import SnapshotError, TakenOf
from schemas.emission import EmissionConfig
from schemas.events import AgentEvent, AgentInfo, BranchInfo, EndStatus, Workspace
from schemas.jsontext import compact
from schemas.lifecycle import Lifecycle, RolloutOpened

AGENT = AgentInfo(name="braid-fork", version="1")

SYSTEM_PROMPT = (
    "You are a coding agent in a sandboxed workspace. Look before you change things, check your work by running it, and "
    "finish with an answer of two or three sentences that says what you did and what you checked."
)


class Snapshots(Protocol):
    """The store of workspaces."""

    def keep(self, files: Files, taken_of: TakenOf) -> Workspace:
        """Keep the workspace of an attempt; returns its reference. Raises SnapshotError."""


class Sampling(NamedTuple):
    """How branches differ."""

    temperatures: tuple[float, ...] = ()
    """The temperature of branch 0, 1, ...; repeated from the start if there are more branches. Empty: the model's own.
    """
    seed: int | None = None
    """Of branch 0; the next branch has the next."""

    def temperature(self, branch: int) -> float | None:
        """Of one branch."""
        return self.temperatures[branch % len(self.temperatures)] if self.temperatures else None

    def seed_of(self, branch: int) -> int | None:
        """Of one branch."""
        return None if self.seed is None else self.seed + branch


class BranchResult(NamedTuple):
    """A branch that ended."""

    branch_index: int
    attempt: int
    status: EndStatus
    error: str | None
    workspace: Workspace | None
    steps: int
    tokens: TokenUsage


Progress = Callable[[int, str], None]
"""Called on every change, with the branch and its current activity."""


def opening(
    task: Task, rollout_id: str, branches: int, labels: Mapping[str, str], deadline_ms: int | None = None
) -> RolloutOpened:
    """The record that opens a rollout. It contains everything that decides what the model sees."""
    tools = compact(list(DEFINITIONS))
    return RolloutOpened(
        rollout_id=rollout_id,
        task=task.instruction,
        branches=branches,
        required=task.braid.required,
        deadline_ms=deadline_ms,
        system_prompt=SYSTEM_PROMPT,
        tools=tools,
        labels={"task": task.name, "task_digest": task.digest, **labels},
        summarize=SUMMARIES,
        tool_manifest_digest=sha256(tools.encode()).hexdigest(),
    )


@dataclass
class ForkRunner:
    """One fork while it runs."""

    task: Task
    opened: RolloutOpened
    model_for: Callable[[int], Model]
    pool: KernelPool[Sandbox]
    log: Log
    snapshots: Snapshots
    clock: Clock
    budgets: Budgets = field(default_factory=Budgets)
    sampling: Sampling = field(default_factory=Sampling)
    prefix: tuple[AgentEvent, ...] = ()
    """The shared beginning of a fork from the middle."""
    redacting: bool = True
    patience: float = 1.0
    progress: Progress = lambda _branch, _what: None
    spent: Spent = field(default_factory=Spent)

    async def open(self) -> None:
        """Put the rollout on the log: before any of its branches."""
        await self.log.append(Lifecycle(opened=self.opened))

    async def run(self, jobs: Sequence[Job]) -> AsyncGenerator[BranchResult, None]:
        """Run branches, as many at once as the pool has slots; each result when its branch has ended.

        Closing the iterator early stops the branches that run; they end as aborted.
        """
        tasks = [asyncio.create_task(self._branch(job), name=f"branch {job.branch_index}") for job in jobs]
        timer = None
        if self.budgets.total_s is not None:
            timer = asyncio.get_running_loop().call_later(
                self.budgets.total_s, _stop, tasks, "budget: the fork's time is over"
            )
        try:
            for next_one in asyncio.as_completed(tasks):
                yield await next_one
        finally:
            if timer is not None:
                timer.cancel()
            _stop(tasks, "the fork was stopped")
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- one branch ----------------------------------------------------------------------------------------------------

    async def _branch(self, job: Job) -> BranchResult:
        model = self.model_for(job.branch_index)
        seed = self.sampling.seed_of(job.branch_index) if model.takes_seed else None
        info = BranchInfo(
            temperature=self.sampling.temperature(job.branch_index),
            seed=seed,
            session_id=f"{self.opened.rollout_id}-b{job.branch_index}-a{job.attempt}",
            agent=AGENT.model_copy(update={"model": model.name}),
            observed="summarized",
        )
        recorder = Recorder(self.log, self.opened.rollout_id, *job, info, self.clock)
        self.progress(job.branch_index, "waits for a sandbox")
        try:
            async with self.pool.lease() as sandbox:
                return await self._in_sandbox(job, sandbox, model, recorder, info)
        except SandboxError as error:
            return await _seen_through(self._end(job, recorder, Ending("infra_error", f"sandbox: {error}"), None, None))
        except asyncio.CancelledError as stop:
            # Cancelled while waiting for a sandbox: the branch still ends with its reason.
            return await _seen_through(self._end(job, recorder, _aborted(stop), None, None))

    async def _in_sandbox(
        self, job: Job, sandbox: Sandbox, model: Model, recorder: Recorder, info: BranchInfo
    ) -> BranchResult:
        environment = self.task.options.environment
        limits = Limits(
            timeout_s=self.budgets.branch_s, memory_mb=environment.memory_mb, file_mb=environment.storage_mb
        )
        tools = Tools(sandbox, limits)
        agent = Agent(
            self.opened, model, tools, recorder, self.budgets, self.spent,
            temperature=info.temperature, seed=info.seed, redacting=self.redacting, patience=self.patience,
            notice=lambda what: self.progress(job.branch_index, what),
        )  # fmt: skip
        self.progress(job.branch_index, "starts")
        try:
            async with asyncio.timeout(self.budgets.branch_s):
                await sandbox.put(self.task.start)
                await self._begin(agent, tools)
                ending = await agent.run()
        except TimeoutError:
            ending = Ending("aborted", f"budget: the branch's time ({self.budgets.branch_s:g} s) is over")
        except asyncio.CancelledError as stop:
            ending = _aborted(stop)
        except FileProblemError as error:
            ending = Ending("infra_error", f"sandbox: the task's files cannot be put there: {error}")
        return await _seen_through(self._end(job, recorder, ending, agent, sandbox))

    async def _begin(self, agent: Agent, tools: Tools) -> None:
        """Start the run: from the task, or from a recorded beginning."""
        if not self.prefix:
            agent.start()
            await agent.recorder.flush()
            return
        limits = ToolLimits(EmissionConfig(), self.opened).of
        prefix = read_prefix(self.prefix, limits, redacting=self.redacting)
        for event in prefix.events:
            agent.recorder.take(event.model_copy(update={"trace_id": agent.recorder.trace_id}))
            if agent.recorder.is_full:
                await agent.recorder.flush()
        agent.messages, agent.steps, agent.tokens = list(prefix.messages), prefix.steps, prefix.tokens
        agent.chat.resume(prefix.events)
        await agent.recorder.flush()
        differing = await replay(prefix, tools)
        agent.recorder.event(
            "status", {"phase": "prefix_replayed", "events": len(prefix.events), "differingCalls": differing}
        )

    async def _end(
        self, job: Job, recorder: Recorder, ending: Ending, agent: Agent | None, sandbox: Sandbox | None
    ) -> BranchResult:
        """The last slice: how it ended, and the current workspace."""
        workspace = None
        if sandbox is not None and ending.status in ("answered", "failed"):
            try:
                workspace = self.snapshots.keep(await sandbox.files(), TakenOf(self.opened.rollout_id, *job))
            except FileProblemError as error:  # the agent's own doing: more, larger or deeper than any workspace
                ending = Ending("failed", f"the workspace could not be kept: {error}")
            except (SandboxError, SnapshotError) as error:
                ending = Ending("infra_error", f"the workspace could not be kept: {error}")
        if ending.status != "answered":
            recorder.event("error", {"error": ending.error, "step": agent.steps if agent else 0})
        await recorder.end(ending.status, ending.error, workspace)
        self.progress(job.branch_index, ending.status)
        steps, tokens = (agent.steps, agent.own_tokens) if agent else (0, TokenUsage())
        return BranchResult(*job, ending.status, ending.error, workspace, steps, tokens)


async def _seen_through(work: Coroutine[None, None, BranchResult]) -> BranchResult:
    """Work that is finished whatever is cancelled meanwhile: a branch ends once."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


def _stop(tasks: Sequence["asyncio.Task[BranchResult]"], why: str) -> None:
    for task in tasks:
        if not task.done():
            task.cancel(why)


def _aborted(stop: asyncio.CancelledError) -> Ending:
    """The end of a branch that was stopped."""
    task = asyncio.current_task()
    if task is not None:
        with suppress(ValueError):
            task.uncancel()  # the cancellation is answered here: the branch ends in order
    return Ending("aborted", str(stop.args[0]) if stop.args else "stopped")
