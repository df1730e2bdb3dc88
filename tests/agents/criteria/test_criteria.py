"""Criteria: each method on files, what is no pass, and what is refused where the task is loaded."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from agents.criteria.checks import PASSED, Checked, check_files, count_headings, together
from agents.criteria.criterion import Criterion
from agents.fork.check_verdicts import NO_MATCH, check_verdicts, run_criteria, searched
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.subject import Subject
from agents.fork.task import Task, TaskError
from agents.fork.task_adapter import SAMPLES, find_task, load_task
from agents.judge.scripted_judge_adapter import Rules, ScriptedJudge
from agents.workspace.files import File

NOTES = "# One\n\ntext here\n\n```\n# not a heading\n```\n## Two\n#no\n"
FILES = {"NOTES.md": File(NOTES.encode()), "blob": File(b"\xff\xfe"), "link": File(b"NOTES.md", link=True)}


def criterion(method: str, path: str = "NOTES.md", **more: Any) -> Any:
    return TypeAdapter(Criterion).validate_python({"name": "n", "method": method, "path": path, **more})


@pytest.mark.parametrize(
    ("asked", "status", "hint"),
    [
        (criterion("file_exists"), "pass", ""),
        (criterion("file_exists", "none.md"), "fail", "not there"),
        (criterion("file_exists", "link"), "fail", "a link"),
        (criterion("file_size_min", bytes=len(NOTES)), "pass", ""),
        (criterion("file_size_min", bytes=len(NOTES) + 1), "fail", f"has {len(NOTES)}"),
        (criterion("file_size_max", bytes=len(NOTES)), "pass", ""),
        (criterion("file_size_max", bytes=1), "fail", "at most 1 bytes"),
        (criterion("file_contains", text="text here"), "pass", ""),
        (criterion("file_contains", text="Text here"), "fail", "lacks"),
        (criterion("file_contains", "blob", text="x"), "fail", "not UTF-8"),
        (criterion("headings_count_min", count=2), "pass", ""),
        (criterion("headings_count_min", count=3), "fail", "has 2"),
        (criterion("word_count_min", count=3), "pass", ""),
        (criterion("word_count_min", count=300), "fail", "at least 300 words"),
    ],
)
def test_what_the_files_say(asked: Any, status: str, hint: str) -> None:
    """Each method passes, and fails with what was found."""
    found = check_files(asked, FILES)
    assert (found.status, hint in found.hint) == (status, True), found


def test_no_criteria_is_not_a_pass() -> None:
    """An unknown one is no pass either; one that fails decides."""
    unknown, failed = Checked("unknown"), Checked("fail")
    assert together([]).status == "unknown"
    assert together([PASSED, PASSED]).status == "pass"
    assert together([PASSED, unknown]).status == "unknown"
    assert together([unknown, failed]).status == "fail"


def test_headings_in_code_do_not_count() -> None:
    """Fences of both kinds, indented ones too."""
    assert count_headings("~~~\n# a\n```\n# b\n~~~\n# c\n") == 1


async def test_commands_and_expressions_run_in_a_sandbox(local: LocalSandboxes) -> None:
    """Each on the files as they were left; what does not end is unknown."""
    task = load_task(find_task("csv-table"))
    asked = [
        command("test -f NOTES.md && rm NOTES.md"),
        command("test -f NOTES.md"),
        command("exit 3", exit_code=3),
        command("echo no >&2; exit 1"),
        command("sleep 30", timeout_s=0.3),
        criterion("file_matches", pattern=r"^## \w+"),
        criterion("file_matches", pattern=r"(?m)^## \w+$"),
        criterion("file_matches", "none", pattern="x"),
    ]  # fmt: skip
    found = await run_criteria(asked, task, FILES, await local.create(), None)
    assert [each.status for each in found] == ["pass", "pass", "pass", "fail", "unknown", "fail", "pass", "fail"]
    assert "exit code 1" in found[3].hint


def test_a_search_that_could_not_look_is_unknown() -> None:
    """A missing or killed interpreter says nothing about the file; only a search that ended by itself does."""
    asked = criterion("file_matches", pattern="x")
    assert searched(asked, NO_MATCH, "").status == "fail"
    for code, said in ((127, "python3: not found"), (-9, ""), (1, "MemoryError"), (None, "")):
        found = searched(asked, code, said)
        assert found.status == "unknown"
        assert said in found.hint


def command(text: str, **more: Any) -> Any:
    value = {"name": "n", "method": "command", "command": ["sh", "-c", text], **more}
    return TypeAdapter(Criterion).validate_python(value)


@pytest.mark.parametrize(("score", "status"), [(8, "pass"), (3, "fail"), (None, "unknown")])
async def test_a_judge_scores_a_file(score: float | None, status: str, local: LocalSandboxes) -> None:
    """By the judge's adapter; a judge without an answer is unknown, never a score."""
    rule: dict[str, Any] = {"score": score} if score is not None else {"cause": "timeout"}
    judge = ScriptedJudge(Rules.model_validate({"judge": "rules", "rule": [rule]}))
    asked = criterion("llm_judge", rubric="clear?", score_min=6, samples=2)
    (found,) = await run_criteria([asked], load_task(find_task("csv-table")), FILES, await local.create(), judge)
    assert found.status == status
    assert found.score == (None if score is None else score / 10)
    assert ("timeout" in found.hint) == (score is None)


def task_with(tmp_path: Path, options: str) -> Task:
    folder = Path(shutil.copytree(SAMPLES / "csv-table", tmp_path / "task"))
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text + options)
    return load_task(folder)


def entry(**fields: Any) -> str:
    return "\n[[metadata.braid.criteria]]\n" + "".join(f"{key} = {value!r}\n" for key, value in fields.items())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (entry(name="a", method="file_exits", path="x"), "file_exits"),
        (entry(name="a", path="x"), "method"),
        (entry(name="a", method="file_contains", path="x"), "text"),
        (entry(name="a", method="file_matches", path="x", pattern="("), "not a regular expression"),
        (entry(name="build", method="file_exists", path="x"), "name of another verdict"),
        (entry(name="a", method="file_exists", path="x") * 2, "same name"),
        (entry(name="a", method="command", command=[]), "command"),
    ],
)
def test_a_wrong_criterion_is_an_error_where_the_task_is_loaded(tmp_path: Path, options: str, says: str) -> None:
    """The file, the field and the reason are named."""
    with pytest.raises(TaskError, match=r"task\.toml") as error:
        task_with(tmp_path, options)
    assert says in str(error.value)


def test_required_verdicts_must_be_possible(tmp_path: Path) -> None:
    """A task that requires criteria or a page has them."""
    folder = Path(shutil.copytree(SAMPLES / "csv-table", tmp_path / "task"))
    text = (folder / "task.toml").read_text()
    for name in ("criteria", "visual"):
        (folder / "task.toml").write_text(text.replace('required = ["build"]', f'required = ["{name}"]'))
        with pytest.raises(TaskError, match=f"required names {name}"):
            load_task(folder)


async def test_verdicts_have_names_hints_and_ids_that_stay(tmp_path: Path, local: LocalSandboxes) -> None:
    """One for each and one for all together; the same look has the same ids."""
    task = task_with(tmp_path, entry(name="notes", method="file_exists", path="none.md", hint="write them"))
    subject = Subject("r", 0, 0, "test", "files")
    first = await check_verdicts(task, FILES, await local.create(), None, subject)
    again = await check_verdicts(task, FILES, await local.create(), None, subject)
    assert first == again
    assert [(each.name, each.status, each.hint) for each in first] == [
        ("notes", "fail", "write them: none.md is not there"),
        ("criteria", "fail", "1 of 1 criteria fail, 0 are unknown"),
    ]
    plain = load_task(find_task("csv-table"))
    assert await check_verdicts(plain, FILES, await local.create(), None, subject) == []
