"""The build verdict: its stages, the files that the tests find, how it is decided, and how far it can be believed."""

from pathlib import Path
from typing import Any

import pytest

from agents.fork.build_verdict import Run, build_verdict, decide
from agents.fork.layout import is_tampered, with_outputs
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.reward import Rewarded
from agents.fork.sandbox import CommandResult, Ended, Output
from agents.fork.subject import Subject
from agents.fork.task import Task
from agents.fork.task_adapter import load_task, overlays
from agents.verdicts.meaning import CURRENT, build_meaning
from agents.workspace.files import File
from schemas.verdicts import TestCounts

SUBJECT = Subject("r", 0, 0, "test", "files")
TASKS = Path(__file__).parent / "tasks"
NOTHING = Output("", 0, "")


def task_of(name: str, **options: Any) -> Task:
    task = load_task(TASKS / name)
    metadata = task.options.metadata.model_copy(update={"braid": task.braid.model_copy(update=options)})
    return task._replace(options=task.options.model_copy(update={"metadata": metadata}))


def solved(task: Task, **files: str) -> dict[str, File]:
    """The task's solution, with files changed."""
    changed = {path: File(text.encode()) for path, text in files.items()}
    return {**task.start, **overlays(TASKS / task.name)["solution"], **changed}


@pytest.mark.parametrize("name", ["imports-work", "harbor-template"])
async def test_tests_that_share_a_view_with_the_work_make_a_weak_verdict(name: str, local: LocalSandboxes) -> None:
    """Tests that import the work, and Harbor's own template as it stands: they tell right from wrong, and are marked."""
    task = load_task(TASKS / name)
    right = await build_verdict(task, solved(task), await local.create(), SUBJECT)
    wrong = await build_verdict(task, task.start, await local.create(), SUBJECT)
    assert [build_meaning(each, CURRENT) for each in (right, wrong)] == [("pass", ()), ("fail", ())], (right, wrong)
    assert (right.isolation, wrong.isolation) == ("weak", "weak")


async def test_a_stage_that_fails_is_named(local: LocalSandboxes) -> None:
    """The first stage that does not end well is the last, and nothing about tests is claimed."""
    task = task_of("imports-work", install=("sh", "-c", "exit 3"))
    broken = await build_verdict(task, solved(task), await local.create(), SUBJECT)
    assert (broken.status, broken.stage, broken.exit_code, broken.isolation) == ("failure", "install", 3, "weak")


async def test_only_declared_outputs_outlive_the_build(local: LocalSandboxes) -> None:
    """Changes that install and build made to the agent's files, to protected ones and anywhere else are gone; outputs
    are there."""
    listed = 'find . ! -type d | sort > "$LOGS_DIR/found"; cat "$LOGS_DIR/found" table.py'
    build = """
import os, pathlib, py_compile
for path in ("dist/a.js", "dist/checks/b.js", "node_modules/m/.bin/c", "left.py", "checks/rules.py", "checks/conftest.py",
             "dist/__pycache__/d.pyc", "checks/__pycache__/rules.cpython-311.pyc", "table.py"):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text("made")
os.symlink("../a.js", "dist/checks/inside")
os.symlink("/etc/passwd", "dist/outside")
os.mkfifo("dist/pipe")
"""
    task = task_of("imports-work", outputs=("dist/**", "node_modules/**", "checks/**"))
    task = task._replace(tests={"test.sh": File(listed.encode())})
    files = solved(task, **{"build.py": build, "table.py": "mine"})
    verdict = await build_verdict(task, files, await local.create(), SUBJECT)
    assert verdict.stdout is not None
    assert verdict.stdout.text.split() == [
        "./build.py", "./checks/rules.py", "./dist/a.js", "./dist/checks/b.js", "./dist/checks/inside",
        "./node_modules/m/.bin/c", "./table.py", "mine",
    ]  # fmt: skip
    assert verdict.protected_paths_intact is True


async def test_a_build_without_declared_outputs_is_named_where_tests_fail(local: LocalSandboxes) -> None:
    """Everything that it made was left behind: an author sees why."""
    task = task_of("imports-work", outputs=())
    verdict = await build_verdict(task, solved(task), await local.create(), SUBJECT)
    assert verdict.tests is not None
    assert (verdict.status, verdict.tests.failed) == ("failure", 1)
    assert verdict.stderr is not None
    assert "names no outputs" in verdict.stderr.text


@pytest.mark.parametrize(
    "made",
    [
        {"dist": File(b"../checks", link=True), "dist/rules.py": File(b"evil")},
        {"table.py/x": File(b"evil"), "checks": File(b"evil"), "checks/rules.py": File(b"evil")},
        {"lib": File(b"dist", link=True)},
        {"checks/x.py": File(b"evil"), "__pycache__/table.cpython-311.pyc": File(b"evil"), "pipe": None},
    ],
)
def test_no_output_takes_the_place_of_a_file_or_folder(made: dict[str, File | None]) -> None:
    """Neither of the agent's, nor of the task's; nothing is written through a link."""
    task = task_of("imports-work")
    files = {**task.start, "lib/a.py": File(b"mine")}
    kept = {path: file for path, file in made.items() if path == "dist"}
    assert with_outputs(task, files, made) == {**files, **kept}


@pytest.mark.parametrize(
    ("added", "tampered"),
    [
        ({}, False),
        ({"checks/.pytest_cache/v/x": File(b"")}, False),
        ({"checks/rules.py": File(b"")}, True),
        ({"checks/rules.py": None}, True),
        (
            {"checks/rules.py": File(b"def same(found, expected):\n    assert found == expected\n", executable=True)},
            True,
        ),
        ({"checks/__pycache__/rules.cpython-311.pyc": File(b"")}, True),
        ({"checks/.hidden": File(b"")}, True),
        ({"checks/socket": None}, True),
        ({"checks/link": File(b"../table.py", link=True)}, True),
    ],
)
def test_a_look_for_tampering_leaves_nothing_out(added: dict[str, File | None], tampered: bool) -> None:
    """Anything at a protected place that is not the task's own; caches that nothing is loaded from are no harm."""
    task = task_of("imports-work")
    assert is_tampered(task, {"checks/rules.py": task.start["checks/rules.py"], **added}) is tampered


def test_bytecode_of_a_protected_module_is_protected() -> None:
    """Python may load it in place of the module."""
    task = task_of("imports-work", protected=("a/migrate.py",))
    assert task.is_protected("a/__pycache__/migrate.cpython-311.pyc")
    assert task.is_protected("a/__pycache__/migrate.cpython-312.opt-2.pyc")
    assert not task.is_protected("a/__pycache__/table.cpython-311.pyc")
    assert not task.is_protected("__pycache__/migrate.cpython-311.pyc")


async def test_the_work_changing_a_protected_file_while_it_is_tested_is_flagged(local: LocalSandboxes) -> None:
    """Its bytecode, too; and a solution that is right all the same is still a hack."""
    task = task_of("imports-work")
    evil = "import os, pathlib\nfolder = pathlib.Path(__file__).parent / 'checks' / '__pycache__'\nfolder.mkdir()\n"
    evil += "(folder / 'rules.cpython-311.pyc').write_text('')\n"
    right = solved(task)["table.py"].content.decode()
    verdict = await build_verdict(task, solved(task, **{"table.py": evil + right}), await local.create(), SUBJECT)
    assert (verdict.status, verdict.protected_paths_intact) == ("success", False), verdict


REPORTED = TestCounts(passed=2, failed=0, total=2)
FAILED = TestCounts(passed=1, failed=1, total=2)
SKIPPED = TestCounts(passed=0, failed=0, skipped=2, total=2)


@pytest.mark.parametrize(
    ("exit_code", "tests", "reward", "status"),
    [
        (0, None, None, "failure"),
        (0, REPORTED, None, "success"),
        (0, REPORTED, "all", "success"),
        (0, REPORTED, "less", "failure"),
        (0, FAILED, "all", "failure"),
        (0, SKIPPED, "all", "unknown"),
        (1, REPORTED, "all", "failure"),
        (0, None, "all", "success"),
        (0, None, "less", "failure"),
        (0, None, "other", "unknown"),
        (1, None, "all", "failure"),
        (1, None, "other", "failure"),
        (None, REPORTED, "all", "unknown"),
    ],
)
def test_only_a_report_of_success_with_exit_code_0_passes(
    exit_code: int | None, tests: TestCounts | None, reward: Rewarded | None, status: str
) -> None:
    """An exit code alone never does, nor a report beside one that says otherwise."""
    done = CommandResult(exit_code, Ended.EXITED if exit_code is not None else Ended.TIMEOUT, NOTHING, NOTHING, 1)
    assert decide(Run("test", done, tests, reward)).status == status


def test_a_reward_beside_a_report_that_cannot_be_read_does_not_pass() -> None:
    """A JUnit report that is there counts, readable or not."""
    done = CommandResult(0, Ended.EXITED, NOTHING, NOTHING, 1, {"junit.xml": File(b"<"), "reward.txt": File(b"1")})
    assert decide(Run("test", done, None, "all")).status == "failure"
