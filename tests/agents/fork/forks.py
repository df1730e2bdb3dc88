"""A fork in a test: a log in memory, real sandboxes, and what the product makes of what was written."""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from agents.facts.fact import Fact
from agents.fork.budget import Budgets
from agents.fork.history import Job
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.pool import KernelPool
from agents.fork.runner import BranchResult, ForkRunner, Sampling, opening
from agents.fork.task import Task
from agents.fork.task_adapter import find_task, load_task
from agents.models.model import Model
from agents.summarize.branch import BranchFacts, build_branch, raw_digest
from agents.summarize.event_reader import keep_slice
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.branches import BranchRecord
from schemas.emission import EmissionConfig
from schemas.events import AgentEvent, AgentEvents, fields_of
from schemas.jsontext import parse_object
from schemas.lifecycle import RolloutOpened


class ListLog:
    """A log in memory."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    async def append(self, fact: Fact) -> None:
        self.facts.append(fact)

    def slices(self, branch: int = 0, attempt: int = 0) -> list[AgentEvents]:
        return [
            fact
            for fact in self.facts
            if isinstance(fact, AgentEvents) and (fact.branch_index, fact.attempt) == (branch, attempt)
        ]

    def events(self, branch: int = 0, attempt: int = 0) -> list[AgentEvent]:
        """The events of an attempt; their seqs have no gaps and no overlaps, and its end is its last slice."""
        slices = self.slices(branch, attempt)
        found: list[AgentEvent] = []
        for one in slices:
            assert one.first_seq == len(found), "a gap or an overlap"
            found += one.events
        assert [one.ended for one in slices] == [False] * (len(slices) - 1) + [True]
        assert slices[-1].last_seq == len(found) - 1
        return found

    def data(self, kind: str, branch: int = 0, attempt: int = 0) -> list[dict[str, Any]]:
        return [parse_object(event.data) for event in self.events(branch, attempt) if event.event == kind]

    def record(self, opened: RolloutOpened, branch: int = 0) -> BranchRecord:
        """The branch as the product records it."""
        slices = self.slices(branch)
        kept = [keep_slice([fields_of(event) for event in self.events(branch)], 0, 0, redacting=True)]
        last, first = slices[-1], slices[0]
        assert last.status is not None
        facts = BranchFacts(
            opened.rollout_id, branch, 0, kept, (), last.status, last.error, last.workspace, first.branch, opened,
            raw_digest(kept),
        )  # fmt: skip
        return build_branch(facts, EmissionConfig())


def whole(log: ListLog, branches: int) -> None:
    """Every branch ended, every call of it has its result, and a failure says why."""
    for branch in range(branches):
        calls: dict[str, int] = defaultdict(int)
        for event in log.events(branch):
            data = parse_object(event.data)
            calls[data.get("callId", "")] += {"tool_call": 1, "tool_result": -1}.get(event.event, 0)
        last = log.slices(branch)[-1]
        if last.status in ("answered", "failed"):
            assert not any(calls.values()), calls
            assert last.workspace is not None
        assert (last.status == "answered") == (log.events(branch)[-1].event == "final_answer")
        assert last.status == "answered" or last.error


@asynccontextmanager
async def runner(
    tmp_path: Path, model_for: Callable[[int], Model], log: ListLog, *, branches: int = 1, slots: int = 4,
    task: Task | None = None, budgets: Budgets | None = None, **options: Any,
) -> AsyncIterator[ForkRunner]:  # fmt: skip
    """A runner on real sandboxes; none is left when it is over."""
    task = task or load_task(find_task("csv-table"))
    local = await LocalSandboxes.open(tmp_path / "sandboxes")
    pool = KernelPool(local.create, slots)
    try:
        yield ForkRunner(
            task, opening(task, "r", branches, {}), model_for, pool, log, SnapshotStore(tmp_path / "snapshots"),
            lambda: time.time_ns() // 10**6, budgets or Budgets(branch_s=60), patience=0.02, **options,
        )  # fmt: skip
    finally:
        await pool.close()
        await local.close()
        assert list((tmp_path / "sandboxes").iterdir()) == []


async def run_all(forked: ForkRunner, jobs: Sequence[Job] | None = None) -> list[BranchResult]:
    """Run all branches of a rollout; results by branch."""
    if jobs is None:
        await forked.open()
        jobs = [Job(branch) for branch in range(forked.opened.branches or 0)]
    async with aclosing(forked.run(jobs)) as running:
        return sorted([result async for result in running])


__all__ = ["ListLog", "Sampling", "run_all", "runner", "whole"]
