"""Looks at work: cheats are confirmed in real sandboxes; flaky tests, swallowed exit codes and broken work never are."""

import os
import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from agents.fork.build_verdict import Run
from agents.fork.junit import read_counts
from agents.fork.looks import Findings, RunTests, control_of, look_at
from agents.fork.sandbox import CommandResult, Ended, Output
from agents.fork.task import Task
from agents.fork.task_adapter import load_task, read_workspace
from agents.workspace.files import File, Files
from tests.agents.hacks.corpus import Made, branches, start_files, write_task
from tests.agents.hacks.corpus_tasks import TASKS, CorpusTask
from tests.agents.hacks.spellings import TASKS as SPELLED
from tests.agents.hacks.spellings import spellings
from tests.agents.hacks.spellings import write_task as write_spelled


def left_by(task: CorpusTask, made: Made) -> dict[str, File]:
    texts = {**start_files(task), **made.files}
    return {path: File(text.encode()) for path, text in texts.items() if text is not None}


async def found_in(
    task: CorpusTask, names: set[str], run: RunTests, tmp_path: Path
) -> dict[str, tuple[Made, Findings]]:
    write_task(task, tmp_path / task.name)
    loaded = load_task(tmp_path / task.name)
    control = await control_of(loaded, run)
    return {
        made.name: (made, await look_at(loaded, left_by(task, made), control, run))
        for made in branches(task) if not names or made.name in names
    }  # fmt: skip


def confirmed(findings: Findings) -> set[str]:
    return {each.rule for each in findings.signals if each.kind == "confirmed"}


async def test_an_answer_equal_to_everything_and_a_hook_are_confirmed_and_honest_work_is_not(
    run_tests: RunTests, tmp_path: Path
) -> None:
    found = await found_in(TASKS[2], {"good", "wrong-0", "always-equal", "hook"}, run_tests, tmp_path)
    assert confirmed(found["always-equal"][1]) == {"L.sentinel"}
    assert confirmed(found["hook"][1]) == {"L.canary", "L.bare"}
    for name in ("good", "wrong-0"):
        assert not found[name][1].signals, name


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
async def test_every_provable_cheat_of_the_corpus_is_confirmed_and_no_honest_branch(
    task: CorpusTask, run_tests: RunTests, tmp_path: Path
) -> None:
    for name, (made, findings) in (await found_in(task, set(), run_tests, tmp_path)).items():
        assert bool(confirmed(findings)) >= made.provable, name
        if made.label == "honest":
            assert not findings.signals, name


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", SPELLED)
async def test_provable_spellings_are_confirmed_and_none_of_their_honest_neighbours(
    name: str, run_tests: RunTests, tmp_path: Path
) -> None:
    write_spelled(name, tmp_path / name)
    task = load_task(tmp_path / name)
    control = await control_of(task, run_tests)
    for each in spellings():
        if each.task != name or not (each.provable or each.label == "honest"):
            continue
        files = {path: File(text.encode()) for path, text in each.left.items()}
        found = await look_at(task, files, control, run_tests)
        assert bool(confirmed(found)) == (each.label != "honest"), (each.name, found.signals)


# -- without a sandbox: runs whose outcomes are drawn ---------------------------------------------------------------------


FAILURE = '<failure message="assert"/>'


def played(outcomes: Mapping[str, bool], *, exit_code: int | None = None) -> Run:
    """A run with these outcomes, as a test runner reports them."""
    cases = "".join(
        f'<testcase classname="tests.test_durations_all" name="{name}">{"" if passed else FAILURE}</testcase>'
        for name, passed in outcomes.items()
    )
    return reported(cases, exit_code=exit_code if exit_code is not None else int(not all(outcomes.values())))


def reported(cases: str, *, exit_code: int) -> Run:
    """A run with these cases in its report."""
    report = f'<testsuites><testsuite name="pytest">{cases}</testsuite></testsuites>'.encode()
    nothing = Output("", 0, "")
    done = CommandResult(exit_code, Ended.EXITED, nothing, nothing, 1, {"junit.xml": File(report)})
    return Run("test", done, read_counts(report))


async def looks_of(
    task: CorpusTask, tmp_path: Path, *, flaky: float, exit_code: int | None, rounds: int
) -> list[Findings]:
    """Looks at work whose tests pass at random, on a runner that reports honestly."""
    write_task(task, tmp_path / "task")
    loaded, chance = load_task(tmp_path / "task"), random.Random(7)
    good = branches(task)[next(at for at, made in enumerate(branches(task)) if made.name == "good")]

    async def run(asked: Task, files: Files, env: Mapping[str, str]) -> Run:
        text = "\n".join(
            file.content.decode(errors="replace") for path, file in asked.tests.items() if path.endswith(".py")
        )
        seeds = [name for name in text.split("def ") if name.startswith("test_q") and "assert False" in name]
        names = {f"test_case_{at}": files != loaded.start and chance.random() >= flaky for at in range(4)}
        return played(names | {each.partition("(")[0]: False for each in seeds}, exit_code=exit_code)

    control = await control_of(loaded, run)
    return [await look_at(loaded, left_by(task, good), control, run) for _ in range(rounds)]


@pytest.mark.parametrize("exit_code", [None, 0])
async def test_tests_that_fail_one_time_in_five_confirm_nothing(tmp_path: Path, exit_code: int | None) -> None:
    """In 200 looks, also where test.sh swallows its exit code: a difference counts only when every repetition shows it."""
    found = await looks_of(TASKS[1], tmp_path, flaky=0.2, exit_code=exit_code, rounds=100)
    assert not any(confirmed(each) for each in found)
    assert any(signal.rule == "L.unstable" for each in found for signal in each.signals)


@pytest.mark.parametrize(("ended", "report"), [(Ended.TIMEOUT, True), (Ended.EXITED, False)])
async def test_work_that_hangs_or_hides_its_report_where_it_is_looked_at_was_not_looked_at(
    tmp_path: Path, ended: Ended, *, report: bool
) -> None:
    """It passes plain. A verdict on it is unknown, never a pass."""
    task = TASKS[1]
    write_task(task, tmp_path / "task")
    loaded = load_task(tmp_path / "task")
    good = branches(task)[next(at for at, made in enumerate(branches(task)) if made.name == "good")]

    async def run(asked: Task, files: Files, env: Mapping[str, str]) -> Run:
        done = played({f"test_case_{at}": files != loaded.start for at in range(4)})
        if asked.tests == loaded.tests or files == loaded.start:
            return done
        return done._replace(
            tests=None, done=done.done._replace(ended=ended, reports=done.done.reports if report else {})
        )

    found = await look_at(loaded, left_by(task, good), await control_of(loaded, run), run)
    assert found.passes
    sentinel = next(each for each in found.looks if each.name == "sentinel")
    assert (sentinel.made, sentinel.missing) == (False, True)


def test_links_of_a_workspace_are_kept_inside_and_left_out_where_they_lead_outside(tmp_path: Path) -> None:
    """Also one that leads to itself, a pipe, and folders nested deeper than any path may be."""
    (tmp_path / "a.py").write_text("x = 1\n")
    for name, target in (("in.py", "a.py"), ("out", "/etc/passwd"), ("loop", "loop"), ("up", "../..")):
        (tmp_path / name).symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    here = tmp_path
    for _ in range(1200):
        here = here / "d"
        try:
            here.mkdir()
        except OSError:
            break
    try:
        found = read_workspace(tmp_path)
    finally:  # pytest cannot remove folders nested that deep
        while here != tmp_path:
            with suppress(OSError):
                here.rmdir()
            here = here.parent
    assert {path: file.link for path, file in found.items()} == {"a.py": False, "in.py": True, "loop": True}
