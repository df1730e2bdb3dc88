"""The build verdict of a branch: the task's own tests, run on its snapshot in a fresh sandbox.

Install and build come first if the task has them, in a sandbox that is emptied after them: only their declared outputs
are kept. Tests and their reports lie outside of the workspace. A pass needs an exit code of 0 and a report of success;
an exit code alone never passes. A run that hangs is unknown; a broken sandbox is infra_error.

The verdict is strong only if the sandbox ran the tests apart from the work; it is weak if both shared one view,
whatever the task declares. Protected files that an agent changed before, or its code changes while it is tested, are a
hack.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from agents.fork.junit import read_counts, read_coverage
from agents.fork.layout import is_tampered, laid_out, protected_intact, with_outputs
from agents.fork.reward import Rewarded, read_reward
from agents.fork.sandbox import (
    NO_ENV,
    ApartError,
    CommandResult,
    Ended,
    Harness,
    Limits,
    Output,
    Sandbox,
    SandboxError,
)
from agents.fork.subject import Subject
from agents.fork.task import Task
from agents.importers.records import make
from agents.summarize.output import summarize
from agents.workspace.files import File, FileProblemError, Files
from schemas.verdicts import BuildStatus, BuildVerdict, Stage, TestCounts

TAIL_BYTES = 2000
JUNIT = "junit.xml"

TOGETHER = {"PYTHONSAFEPATH": "1"}
"""If tests and work share one view, Python must not import modules from the workspace."""


class Run(NamedTuple):
    """The stages of a task that ran on some files, and their results."""

    stage: Stage
    done: CommandResult
    tests: TestCounts | None = None
    reward: Rewarded | None = None
    coverage: float | None = None
    tampered: bool = False
    """The code under test changed protected files."""
    apart: bool = False
    """The tests ran where the work could not reach them."""


async def build_verdict(
    task: Task, files: Files, sandbox: Sandbox, subject: Subject, baseline_tests: int | None = None
) -> BuildVerdict:
    """Test a branch's files; `sandbox` is empty and used by no other caller."""
    intact = protected_intact(task, files)
    try:
        run = await run_stages(task, files, sandbox)
    except (SandboxError, FileProblemError) as error:
        status: BuildStatus = "unknown" if isinstance(error, ApartError) else "infra_error"
        return untested(subject, status, str(error)).model_copy(update={"protected_paths_intact": intact})
    decision = decide(run)
    seen = {
        "status": decision.status,
        "stage": run.stage,
        "exit_code": run.done.exit_code if decision.exit_decides else None,
        "tests": None if run.tests is None else run.tests.plain(),
        "coverage": run.coverage,
        "protected_paths_intact": False if run.tampered else intact,
        "baseline_tests": baseline_tests,
        "stdout": _output(run.done.stdout),
        "stderr": _output(run.done.stderr, _remark(task, run, decision)),
        "wall_ms": run.done.wall_ms,
        "isolation": "strong" if run.apart else "weak",
    }
    return make(BuildVerdict, subject.said("build") | seen)


def untested(subject: Subject, status: BuildStatus, why: str) -> BuildVerdict:
    """The verdict for a branch that was not tested (yet), and why; it has its own id, so that a real one can follow."""
    return make(BuildVerdict, subject.said(f"build:{status}") | {"status": status, "stderr": _tail(f"verifier: {why}")})


async def run_stages(task: Task, files: Files, sandbox: Sandbox, env: Mapping[str, str] = NO_ENV) -> Run:
    """Run install and build if the task defines them, then tests/test.sh, with `env`; stop at the first stage that
    fails.
    """
    stuck = await run_building(task, files, sandbox)
    if stuck is not None:
        return stuck
    harness = Harness(task.tests, apart=task.braid.tests == "apart")
    limits = _limits(task, task.options.verifier.timeout_sec)
    done = await sandbox.run(shell_of(task), limits, {**({} if harness.apart else TOGETHER), **env}, harness)
    junit, cobertura = report_of(done, JUNIT), report_of(done, "coverage.xml")
    coverage = read_coverage(cobertura)
    return Run(
        stage="test",
        done=done,
        tests=read_counts(junit),
        reward=read_reward(done.reports),
        coverage=read_coverage(junit) if coverage is None else coverage,
        tampered=await _was_tampered(task, sandbox),
        apart=harness.apart,
    )


async def run_building(task: Task, files: Files, sandbox: Sandbox) -> Run | None:
    """Copy the files, and run install and build if the task defines them; return the stage that failed.

    Both run the agent's code: the sandbox is emptied after them, and gets the original files again, with the declared
    outputs.
    """
    await sandbox.put(laid_out(task, files))
    stages: tuple[tuple[Stage, tuple[str, ...]], ...] = (("install", task.braid.install), ("build", task.braid.build))
    for stage, command in stages:
        if command:
            done = await sandbox.run(command, _limits(task, task.options.environment.build_timeout_sec))
            if done.exit_code != 0:
                return Run(stage, done)
    if any(command for _, command in stages):
        made = await sandbox.everything(task.is_output)
        await sandbox.reset()
        await sandbox.put(with_outputs(task, files, made))
    return None


def shell_of(task: Task) -> list[str]:
    """Start tests/test.sh with the shell that its first line names: it need not be executable."""
    first = task.tests["test.sh"].content.partition(b"\n")[0].decode(errors="replace")
    shell = first[2:].split() if first.startswith("#!") else []
    return ["sh", "-c", 'exec "$@" "$TEST_DIR/test.sh"', "test.sh", *(shell or ["sh"])]


class Decision(NamedTuple):
    """The result of a test run, as a build verdict has it."""

    status: BuildStatus
    why: str = ""
    """The reason, if the numbers do not show it."""
    exit_decides: bool = True
    """False if a reward file decided: such tests exit with 0 even if they fail, which is not a contradiction."""


def decide(run: Run) -> Decision:
    """The status of a run. Only a report of success makes one, whatever the exit code."""
    done, tests = run.done, run.tests
    if done.ended is not Ended.EXITED or done.exit_code is None:
        late = f"the {run.stage} stage did not end in time and was stopped after {done.wall_ms // 1000} s"
        return Decision("unknown", late)
    if run.stage == "test" and tests is None and (run.reward is None or JUNIT in done.reports):
        return Decision("failure", "the tests left no usable report in $LOGS_DIR: junit.xml, reward.json or reward.txt")
    if done.exit_code != 0 or (tests is not None and tests.failed):
        return Decision("failure")
    if run.reward == "less":
        return Decision("failure", "the reward is less than 1", exit_decides=False)
    if run.reward == "other":
        return Decision("unknown", "the reward is not between 0 and 1, and only 1 is known to be a pass")
    return Decision("success" if tests is None or tests.passed else "unknown")


async def _was_tampered(task: Task, sandbox: Sandbox) -> bool:
    """Whether the code under test changed or added a protected file."""
    if not task.braid.protected:
        return False
    try:
        return is_tampered(task, await sandbox.everything(task.is_protected))
    except FileProblemError:  # no task has more files, or larger ones
        return True


def report_of(done: CommandResult, name: str) -> bytes:
    """One report of a run; empty if there is none."""
    return done.reports.get(name, File(b"")).content


def _limits(task: Task, timeout_s: float) -> Limits:
    environment = task.options.environment
    return Limits(
        timeout_s=timeout_s,
        cpu_s=int(timeout_s) + 1,
        memory_mb=environment.memory_mb,
        file_mb=environment.storage_mb,
    )


def _remark(task: Task, run: Run, decision: Decision) -> str:
    """The reason of the verdict, if its numbers do not show it."""
    built = task.braid.install or task.braid.build
    if run.tampered:
        why = "the code under test changed protected files"
    elif run.stage == "test" and decision.status == "failure" and built and not task.braid.outputs and not decision.why:
        why = "task.toml names no outputs, so nothing that install and build made was there for the tests"
    else:
        why = decision.why
    return f"verifier: {why}" if why else ""


def _output(output: Output, remark: str = "") -> dict[str, str]:
    text = summarize(output.text, TAIL_BYTES, 0, 40) or ""
    return {"text": f"{text.rstrip()}\n{remark}".lstrip("\n") if remark else text, "digest": output.digest}


def _tail(text: str) -> dict[str, str]:
    return {"text": text[-TAIL_BYTES:], "digest": sha256(text.encode()).hexdigest()}
