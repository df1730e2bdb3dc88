"""The build verdict of a branch: the task's own tests, run on its snapshot in a fresh sandbox.

The agent's files are put there first, then the protected files and the tests of the pristine task over them. A pass needs
an exit code of 0 and a report in which tests passed and none failed. What hangs is unknown; a broken sandbox is infra_error.
"""

from hashlib import sha256
from typing import Any

from agents.fork.errors import FileProblemError, SandboxError
from agents.fork.files import File, Files
from agents.fork.junit import read_counts
from agents.fork.sandbox import CommandResult, Ended, Limits, Output, Sandbox
from agents.fork.task import Task
from agents.importers.records import make, with_verdict_id
from agents.summarize.output import summarize
from schemas.verdicts import BuildStatus, BuildVerdict, TestCounts

FOLDER = ".verifier"
"""Where tests and reports lie, inside the workspace; what an agent left there is removed."""

TAIL_BYTES = 2000


async def build_verdict(
    task: Task, files: Files, sandbox: Sandbox, *, rollout_id: str, branch_index: int, attempt: int, produced_by: str
) -> BuildVerdict:
    """Test a branch's files; `sandbox` is empty and nobody else's."""
    said: dict[str, Any] = {
        "rollout_id": rollout_id,
        "branch_index": branch_index,
        "attempt": attempt,
        "stage": "test",
        "produced_by": produced_by,
        "protected_paths_intact": protected_intact(task, files),
    }
    try:
        done, tests = await run_tests(task, files, sandbox)
    except (SandboxError, FileProblemError) as error:
        said |= {"status": "infra_error", "stderr": _tail(str(error))}
    else:
        said |= {
            "status": build_status(done, tests),
            "exit_code": done.exit_code,
            "tests": None if tests is None else tests.plain(),
            "stdout": _output(done.stdout),
            "stderr": _output(done.stderr),
            "wall_ms": done.wall_ms,
        }
    return make(BuildVerdict, with_verdict_id("build", said))


async def run_tests(task: Task, files: Files, sandbox: Sandbox) -> tuple[CommandResult, TestCounts | None]:
    """Run tests/test.sh on an agent's files; returns how it went and what its report counts."""
    await sandbox.put(laid_out(task, files))
    environment = task.options.environment
    limits = Limits(
        timeout_s=task.options.verifier.timeout_sec,
        cpu_s=int(task.options.verifier.timeout_sec) + 1,
        memory_mb=environment.memory_mb,
        file_mb=environment.storage_mb,
    )
    logs = f"{sandbox.root}/{FOLDER}/logs"
    env = {"TEST_DIR": f"{sandbox.root}/{FOLDER}/tests", "LOGS_DIR": logs}
    done = await sandbox.run(["sh", f"{FOLDER}/tests/test.sh"], limits, env)
    try:
        tests = read_counts(await sandbox.read(f"{FOLDER}/logs/junit.xml"))
    except FileProblemError:
        tests = None
    return done, tests


def laid_out(task: Task, files: Files) -> dict[str, File]:
    """What is tested: the agent's files, under the pristine task's protected files and tests."""
    kept = {path: file for path, file in files.items() if path.split("/")[0] != FOLDER}
    kept |= {path: file for path, file in task.start.items() if task.is_protected(path)}
    kept |= {f"{FOLDER}/tests/{path}": file for path, file in task.tests.items()}
    return kept | {f"{FOLDER}/logs/.keep": File(b"")}


def protected_intact(task: Task, files: Files) -> bool | None:
    """Whether the agent left the protected files as they were; None when there are none."""
    protected = [path for path in task.start if task.is_protected(path)]
    return all(files.get(path) == task.start[path] for path in protected) if protected else None


def build_status(done: CommandResult, tests: TestCounts | None) -> BuildStatus:
    """What a test run says of the build."""
    if done.ended is not Ended.EXITED or done.exit_code is None:
        return "unknown"
    if done.exit_code != 0 or tests is None or tests.failed:
        return "failure"
    return "success" if tests.passed else "unknown"


def _output(output: Output) -> dict[str, str]:
    return {"text": summarize(output.text, TAIL_BYTES, 0, 40) or "", "digest": output.digest}


def _tail(text: str) -> dict[str, str]:
    return {"text": text[-TAIL_BYTES:], "digest": sha256(text.encode()).hexdigest()}
