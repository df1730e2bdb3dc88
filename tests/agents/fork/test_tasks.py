"""Task directories: read whole, refused with a reason; and the samples' tests tell right from wrong."""

import re
import shutil
from pathlib import Path

import pytest

from agents.fork.build_verdict import build_verdict
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.subject import Subject
from agents.fork.task import TaskError
from agents.fork.task_adapter import SAMPLES, find_task, load_task, overlays, sample_names
from agents.verdicts.meaning import CURRENT, build_meaning
from agents.workspace.files import File

SUBJECT = Subject("r", 0, 0, "test", "files")
CASES = [(name, overlay) for name in sample_names() for overlay in overlays(SAMPLES / name)]


@pytest.mark.parametrize(("name", "overlay"), CASES, ids=["/".join(case) for case in CASES])
async def test_a_reference_solution_passes_and_a_broken_one_fails(
    name: str, overlay: str, local: LocalSandboxes
) -> None:
    """In a fresh sandbox, by the task's own tests."""
    task = load_task(find_task(name))
    sandbox = await local.create()
    verdict = await build_verdict(task, {**task.start, **overlays(SAMPLES / name)[overlay]}, sandbox, SUBJECT)
    assert verdict.tests is not None, verdict
    assert verdict.isolation == "strong"
    assert build_meaning(verdict, CURRENT).outcome == ("pass" if overlay == "solution" else "fail"), verdict


@pytest.mark.parametrize("name", sample_names())
async def test_an_untouched_task_fails(name: str, local: LocalSandboxes) -> None:
    """Doing nothing is not a solution."""
    task = load_task(find_task(name))
    verdict = await build_verdict(task, task.start, await local.create(), SUBJECT)
    assert build_meaning(verdict, CURRENT).outcome == "fail"


async def test_a_sample_runs_where_there_is_no_work_program(local: LocalSandboxes) -> None:
    """Its Dockerfile makes one for other runners; such a verdict is weak."""
    folder = find_task("csv-table")
    made = re.search(r"RUN (printf .*) > /usr/local/bin/work && ", (folder / "environment" / "Dockerfile").read_text())
    assert made is not None
    script = f"mkdir /tmp/bin; {made[1]} > /tmp/bin/work; chmod +x /tmp/bin/work; PATH=/tmp/bin:$PATH exec sh /tests/own.sh\n"
    task = load_task(folder)
    braid = task.options.metadata.model_copy(update={"braid": task.braid.model_copy(update={"tests": "together"})})
    task = task._replace(
        options=task.options.model_copy(update={"metadata": braid}),
        tests={**task.tests, "own.sh": task.tests["test.sh"], "test.sh": File(script.encode())},
    )
    files = {**task.start, **overlays(folder)["solution"]}
    verdict = await build_verdict(task, files, await local.create(), SUBJECT)
    assert (verdict.status, verdict.isolation) == ("success", "weak"), verdict


def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES / "csv-table", tmp_path / "task"))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "instruction.md").unlink(), "instruction.md: missing"),
        (lambda folder: (folder / "instruction.md").write_text(" \n"), "instruction.md: empty"),
        (lambda folder: (folder / "task.toml").unlink(), "task.toml: missing"),
        (lambda folder: (folder / "task.toml").write_text("a = "), "task.toml: not TOML"),
        (lambda folder: (folder / "task.toml").write_text("[agent]\ntimeout_sec = -1"), "agent.timeout_sec"),
        (lambda folder: (folder / "task.toml").write_text("[metadata.braid]\nprotect = []"), "metadata.braid.protect"),
        (lambda folder: shutil.rmtree(folder / "environment"), "environment: missing"),
        (lambda folder: (folder / "tests" / "test.sh").unlink(), "test.sh: missing"),
        (lambda folder: (folder / "environment" / "l").symlink_to("/etc/passwd"), "a link"),
    ],
)
def test_what_is_wrong_is_said_with_its_file(tmp_path: Path, damage: object, says: str) -> None:
    """An error names the file, the field and the reason."""
    folder = copy(tmp_path)
    damage(folder)  # type: ignore[operator]
    with pytest.raises(TaskError, match=says):
        load_task(folder)


def test_a_task_is_found_by_its_path_or_as_a_sample(tmp_path: Path) -> None:
    """And an unknown name lists the samples."""
    assert load_task(copy(tmp_path)).name == "task"
    assert load_task(find_task("csv-table")).name == "csv-table"
    with pytest.raises(TaskError, match="csv-table, name-migration"):
        find_task("no-such-task")


def test_the_digest_sees_every_change_and_nothing_else(tmp_path: Path) -> None:
    """The same task anywhere has the same digest; a changed test, file or instruction has another."""
    folder = copy(tmp_path)
    before = load_task(folder).digest
    (folder / "solution" / "notes.txt").write_text("not part of the task")
    assert load_task(folder).digest == before
    for name in ("instruction.md", "tests/test_rows.py", "environment/table.py"):
        original = (folder / name).read_text()
        (folder / name).write_text(original + "\n# more\n")
        assert load_task(folder).digest != before, name
        (folder / name).write_text(original)
    assert load_task(folder).digest == before
