"""The build verdict of a branch: the task's own tests, run on its snapshot in a fresh sandbox.

The agent's files are put there first, then the protected files and the tests of the pristine task over them. A pass needs
an exit code of 0 and a report in which tests passed and none failed. What hangs is unknown; a broken sandbox is infra_error.
What an agent did to protected files before, or its code does to them and to the tests while it is tested, is a hack.
"""

from hashlib import sha256
from typing import NamedTuple

from agents.fork.junit import read_counts, read_coverage
from agents.fork.sandbox import CommandResult, Ended, Limits, Output, Sandbox, SandboxError
from agents.fork.subject import Subject
from agents.fork.task import Task
from agents.importers.records import make
from agents.summarize.output import summarize
from agents.workspace.files import File, FileProblemError, Files, parents
from schemas.verdicts import BuildStatus, BuildVerdict, Stage, TestCounts

FOLDER = ".verifier"
"""Where tests and reports lie, inside the workspace; what an agent left there is removed."""

TESTS = f"{FOLDER}/tests"
LOGS = f"{FOLDER}/logs"

TAIL_BYTES = 2000

IMPORTED = (".py", ".pyc", ".pth", ".so")
"""Files that a test run could load: none may appear beside the tests while they run."""


class Run(NamedTuple):
    """How far a task's stages came on some files."""

    stage: Stage
    done: CommandResult
    tests: TestCounts | None = None
    coverage: float | None = None
    tampered: bool = False
    """The code under test changed protected files or the tests themselves."""


async def build_verdict(
    task: Task, files: Files, sandbox: Sandbox, subject: Subject, baseline_tests: int | None = None
) -> BuildVerdict:
    """Test a branch's files; `sandbox` is empty and nobody else's."""
    intact = protected_intact(task, files)
    try:
        run = await run_stages(task, files, sandbox)
    except (SandboxError, FileProblemError) as error:
        return untested(subject, "infra_error", str(error)).model_copy(update={"protected_paths_intact": intact})
    seen = {
        "status": build_status(run),
        "stage": run.stage,
        "exit_code": run.done.exit_code,
        "tests": None if run.tests is None else run.tests.plain(),
        "coverage": run.coverage,
        "protected_paths_intact": False if run.tampered else intact,
        "baseline_tests": baseline_tests,
        "stdout": _output(run.done.stdout),
        "stderr": _output(run.done.stderr, _remark(run)),
        "wall_ms": run.done.wall_ms,
    }
    return make(BuildVerdict, subject.said("build") | seen)


def untested(subject: Subject, status: BuildStatus, why: str) -> BuildVerdict:
    """The verdict that there is none (yet), and why; its id is another one, so that a real one can follow."""
    return make(BuildVerdict, subject.said(f"build:{status}") | {"status": status, "stderr": _tail(f"verifier: {why}")})


async def run_stages(task: Task, files: Files, sandbox: Sandbox) -> Run:
    """Install and build where the task says how, then tests/test.sh; the first stage that does not end well is the last."""
    stuck = await run_building(task, files, sandbox)
    if stuck is not None:
        return stuck
    await sandbox.put(_beside(task))
    env = {"TEST_DIR": f"{sandbox.root}/{TESTS}", "LOGS_DIR": f"{sandbox.root}/{LOGS}", "PYTHONSAFEPATH": "1"}
    done = await sandbox.run(["sh", f"{TESTS}/test.sh"], _limits(task, task.options.verifier.timeout_sec), env)
    junit, cobertura = await _report(sandbox, "junit.xml"), await _report(sandbox, "coverage.xml")
    coverage = read_coverage(cobertura)
    return Run(
        stage="test",
        done=done,
        tests=read_counts(junit),
        coverage=read_coverage(junit) if coverage is None else coverage,
        tampered=_is_tampered(task, await sandbox.files()),
    )


async def run_building(task: Task, files: Files, sandbox: Sandbox) -> Run | None:
    """Put the files there, install and build where the task says how; returns the stage that did not end well."""
    await sandbox.put(laid_out(task, files))
    stages: tuple[tuple[Stage, tuple[str, ...]], ...] = (("install", task.braid.install), ("build", task.braid.build))
    for stage, command in stages:
        if command:
            done = await sandbox.run(command, _limits(task, task.options.environment.build_timeout_sec))
            if done.exit_code != 0:
                return Run(stage, done)
    if any(command for _, command in stages):
        await _restore(task, sandbox)
    return None


def laid_out(task: Task, files: Files) -> dict[str, File]:
    """The agent's files with the pristine task's protected files over them; nothing that stands in their way."""
    pristine = {path: file for path, file in task.start.items() if task.is_protected(path)}
    folders = {parent for path in pristine for parent in parents(path)}
    kept = {
        path: file
        for path, file in files.items()
        if path.split("/")[0] != FOLDER and not task.is_protected(path) and path not in folders
        if pristine.keys().isdisjoint(parents(path))
    }
    return kept | pristine


def protected_intact(task: Task, files: Files) -> bool | None:
    """Whether the agent left the protected files as they were, and added none; None when nothing is protected."""
    if not task.braid.protected:
        return None
    before = {path: file for path, file in task.start.items() if task.is_protected(path)}
    return before == {path: file for path, file in files.items() if task.is_protected(path)}


def build_status(run: Run) -> BuildStatus:
    """What a run says of the build."""
    if run.done.ended is not Ended.EXITED or run.done.exit_code is None:
        return "unknown"
    if run.done.exit_code != 0 or run.tests is None or run.tests.failed:
        return "failure"
    return "success" if run.tests.passed else "unknown"


def _beside(task: Task) -> dict[str, File]:
    """The tests, and a place for their reports."""
    return {f"{TESTS}/{path}": file for path, file in task.tests.items()} | {f"{LOGS}/.keep": File(b"")}


async def _restore(task: Task, sandbox: Sandbox) -> None:
    """Undo what installing and building (which run the agent's code) did to protected files and to our folder."""
    found = await sandbox.files()
    wanted = laid_out(task, found)
    away = [FOLDER, *(path for path in found if path not in wanted or task.is_protected(path))]
    await sandbox.run(["rm", "-rf", "--", *away], Limits())
    await sandbox.put({path: file for path, file in wanted.items() if task.is_protected(path)})


def _is_tampered(task: Task, after: Files) -> bool:
    pristine = {path: file for path, file in task.start.items() if task.is_protected(path)}
    pristine |= {f"{TESTS}/{path}": file for path, file in task.tests.items()}
    added = (path for path in after if path.startswith(f"{TESTS}/") and path not in pristine)
    return any(after.get(path) != file for path, file in pristine.items()) or any(
        path.endswith(IMPORTED) for path in added
    )


async def _report(sandbox: Sandbox, name: str) -> bytes:
    try:
        return await sandbox.read(f"{LOGS}/{name}")
    except FileProblemError:
        return b""


def _limits(task: Task, timeout_s: float) -> Limits:
    environment = task.options.environment
    return Limits(
        timeout_s=timeout_s,
        cpu_s=int(timeout_s) + 1,
        memory_mb=environment.memory_mb,
        file_mb=environment.storage_mb,
    )


def _remark(run: Run) -> str:
    """Why the verdict is what it is, where its numbers do not say so."""
    if run.done.ended is Ended.TIMEOUT:
        return f"verifier: the {run.stage} stage did not end in time and was stopped after {run.done.wall_ms // 1000} s"
    if run.tampered:
        return "verifier: the code under test changed protected files or the tests"
    if run.stage == "test" and run.tests is None:
        return "verifier: the tests left no usable report in $LOGS_DIR/junit.xml"
    return ""


def _output(output: Output, remark: str = "") -> dict[str, str]:
    text = summarize(output.text, TAIL_BYTES, 0, 40) or ""
    return {"text": f"{text.rstrip()}\n{remark}".lstrip("\n") if remark else text, "digest": output.digest}


def _tail(text: str) -> dict[str, str]:
    return {"text": text[-TAIL_BYTES:], "digest": sha256(text.encode()).hexdigest()}
