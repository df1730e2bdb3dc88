"""`braid audit tasks`: could an agent get the reward of a task without doing the work?"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from streams.commands.console_output import complain, print_json
from streams.commands.numbers import number
from streams.commands.options import Flag, Flags, Json

if TYPE_CHECKING:
    from agents.audit.task_lint import Finding, TaskAudit, TaskTree


@dataclass(frozen=True, kw_only=True)
class TaskFlags(Flags):
    """The options of `braid audit tasks`."""

    run: Annotated[bool, Flag] = False
    """Run each task's tests, in the build verifier's sandboxes: its solution must pass, the untouched and every broken workspace
    must fail."""
    eval_items: Path | None = None
    """JSON lines of {id, question}: a task whose instruction repeats one is contaminated."""
    fail_under: Annotated[float, number("--fail-under", 0, 1)] = 0.6
    """The score below which a task is not good enough."""
    json: Json = False


def tasks(
    folders: Annotated[list[str], Parameter(help="Task directories, or names of sample tasks.")],
    /,
    *,
    flags: TaskFlags = TaskFlags(),
) -> None:
    """Audit task directories: answers, graders and tests that the agent can see or change, secrets, history, tests that pass anything.

    Exits with 1 unless every task is trusted (no critical or high findings) and scores at least --fail-under.

    Example: `braid audit tasks csv-table notes-api --run`
    """
    from agents.audit.task_lint import audited, same_instructions
    from schemas.errors import BraidError
    from streams.jobs.audit.task_trees import read_tree

    trees: dict[Path, TaskTree] = {}
    errors: list[str] = []
    for name in folders:
        path = _folder(name)
        try:
            trees[path] = read_tree(path)
        except BraidError as error:
            errors.append(str(error))
    more = _more(trees, flags)
    alike = same_instructions(trees.values())
    found = [audited(tree, [*more.get(tree.path, []), *_alike(tree, alike)]) for tree in trees.values()]
    if flags.run:
        ran, problems = _ran(list(trees))
        errors += problems
        found = [
            audited(tree, [*each.findings, *ran.get(tree.path, [])])
            for tree, each in zip(trees.values(), found, strict=True)
        ]
    complain(*errors)
    if flags.json:
        print_json({"tasks": [each.plain() for each in found], **({"errors": errors} if errors else {})})
    else:
        _show(found)
    if errors or any(not each.trusted or each.score < flags.fail_under for each in found):
        sys.exit(1)


def _folder(name: str) -> Path:
    """A path, or a sample task."""
    from agents.fork.task_adapter import SAMPLES

    given = Path(name)
    return SAMPLES / name if not given.exists() and "/" not in name and (SAMPLES / name).is_dir() else given


def _alike(tree: "TaskTree", alike: set[str]) -> "list[Finding]":
    from agents.audit.task_lint import Finding

    return [Finding("same-instruction", "instruction.md")] if tree.path in alike else []


def _more(trees: "dict[Path, TaskTree]", flags: TaskFlags) -> "dict[str, list[Finding]]":
    """The findings that need evaluation items."""
    if flags.eval_items is None:
        return {}
    from agents.audit.task_lint import Finding
    from streams.jobs.audit.row_audit import read_index

    index = read_index(flags.eval_items)
    return {
        tree.path: [Finding("contaminated", "instruction.md")]
        for tree in trees.values()
        if tree.instruction is not None and index.check(tree.instruction) is not None
    }


def _ran(folders: list[Path]) -> "tuple[dict[str, list[Finding]], list[str]]":
    """The findings of running tests, by task, and the tasks that could not be run."""
    from streams.cluster.config import load
    from streams.services.verifiers.task_runs import run_tasks
    from streams.views.progress import progress

    found: dict[str, list[Finding]] = {}
    problems: list[str] = []

    async def run() -> None:
        with progress() as say:
            async for ran in run_tasks(folders, load()):
                found[ran.path] = list(ran.findings)
                problems.extend([] if ran.problem is None else [f"{ran.path}: {ran.problem}"])
                say("running", len(found) / len(folders))

    asyncio.run(run())
    return found, problems


def _show(found: "list[TaskAudit]") -> None:
    from streams.log.terminal_text import visible
    from streams.views.tables import show, table

    made = table("", "task", "score", "trusted", "found", right=("score", "found"))
    for each in found:
        made.add_row(
            visible(each.path), f"{each.score:.2f}", "yes" if each.trusted else "NO", f"{len(each.findings):,}"
        )
    lines = [
        visible(f"{finding.severity:8}  {each.path}  {finding.id}  {finding.path}")
        for each in found
        for finding in each.findings
    ]
    show(*([made] if found else []), *lines)
