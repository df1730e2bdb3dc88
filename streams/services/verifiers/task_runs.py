"""Runs of a task's own tests for an audit: on its reference solution, on the untouched workspace, and on every broken one."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.audit.task_lint import Finding
from agents.fork.build_verdict import build_verdict
from agents.fork.pool import KernelPool
from agents.fork.sandbox import Ended, Limits, Sandbox, SandboxError
from agents.fork.subject import Subject
from agents.fork.task import Task, TaskError
from agents.fork.task_adapter import load_task, overlays, read_files
from agents.verdicts.meaning import CURRENT, Outcome, build_meaning
from agents.workspace.files import FileProblemError, Files
from streams.cluster.config import Settings
from streams.services.fork.fork_setup import sandbox_pool
from streams.services.verifiers.build import TRIES

SOLVING = ".braid-solution"
"""The folder of a reference solution while it runs."""


class Ran(NamedTuple):
    """The runs of one task."""

    path: str
    findings: tuple[Finding, ...]
    problem: str | None = None
    """Why it could not be run."""


async def run_tasks(folders: Sequence[Path], settings: Settings) -> AsyncIterator[Ran]:
    """Run each task's tests on its reference solution, on the untouched workspace, and on every broken one."""
    async with sandbox_pool(settings.verifier.sandbox, settings, 1) as pool:
        for folder in folders:
            try:
                yield Ran(str(folder), tuple([each async for each in _run(folder, pool)]))
            except (TaskError, SandboxError, FileProblemError) as error:
                yield Ran(str(folder), (), str(error))


async def _run(folder: Path, pool: KernelPool[Sandbox]) -> AsyncIterator[Finding]:
    task, kept = load_task(folder), overlays(folder)
    if "test.sh" not in task.tests:
        return
    solution = kept.pop("solution", None)
    solved = await _solved(task, folder, pool) if solution is None else {**task.start, **solution}
    if solved is not None and await _outcome(task, solved, pool) != "pass":
        yield Finding("solution-fails", "solution")
    if await _outcome(task, task.start, pool) == "pass":
        yield Finding("untouched-passes", "environment")
    for name, files in kept.items():
        if await _outcome(task, {**task.start, **files}, pool) == "pass":
            yield Finding("broken-passes", name)


async def _solved(task: Task, folder: Path, pool: KernelPool[Sandbox]) -> Files | None:
    """The workspace after the solution's script; None if there is none. A failing script leaves it unchanged."""
    if not (folder / "solution" / "solve.sh").is_file():
        return None
    beside = {f"{SOLVING}/{path}": file for path, file in read_files(folder / "solution").items()}
    async with pool.lease() as sandbox:
        await sandbox.put({**task.start, **beside})
        done = await sandbox.run(["sh", f"{SOLVING}/solve.sh"], Limits(timeout_s=task.options.agent.timeout_sec))
        if done.ended is not Ended.EXITED or done.exit_code != 0:
            return task.start
        made = await sandbox.files()
    return {path: file for path, file in made.items() if not path.startswith(f"{SOLVING}/")}


async def _outcome(task: Task, files: Files, pool: KernelPool[Sandbox]) -> Outcome:
    """The outcome of the task's tests. Raises SandboxError when no sandbox works."""
    subject = Subject("audit", 0, 0, "audit", task.digest)
    for _ in range(TRIES):
        async with pool.lease() as sandbox:
            verdict = await build_verdict(task, files, sandbox, subject)
        if verdict.status != "infra_error":
            return build_meaning(verdict, CURRENT).outcome
    why = "" if verdict.stderr is None else verdict.stderr.text
    raise SandboxError(f"{task.name}: its tests could not run: {why}")
