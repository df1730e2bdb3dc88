"""Task directories: every planted fault is found by its id, and the product's own samples are trusted."""

from collections.abc import Mapping

import pytest

from agents.audit.task_lint import TaskTree, audited, same_instructions
from agents.fork.task_adapter import SAMPLES, sample_names
from streams.jobs.audit.task_trees import TaskAuditError, read_tree

TOML = b'[environment]\nallow_internet = false\n[metadata.braid]\nprotected = ["checks/**", "grade.py"]\n'
GOOD = {
    "task.toml": TOML, "instruction.md": b"Do it.", "environment/app.py": b"print('a program of its own')",
    "tests/test.sh": b"#!/bin/sh\nexec run-the-tests", "solution/solve.sh": b"#!/bin/sh\necho the reference solution",
}  # fmt: skip


def tree(files: Mapping[str, bytes], links: Mapping[str, bool] | None = None, name: str = "t") -> TaskTree:
    folders = {"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)}
    return TaskTree(name, files, links or {}, frozenset(folders))


def ids(files: Mapping[str, bytes | None], links: Mapping[str, bool] | None = None) -> set[str]:
    kept = {path: content for path, content in {**GOOD, **files}.items() if content is not None}
    return {each.id for each in audited(tree(kept, links)).findings}


def test_a_good_task_has_no_finding() -> None:
    """And a score of 1."""
    found = audited(tree(GOOD))
    assert (found.findings, found.score, found.trusted) == ((), 1.0, True)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"tests/test.sh": None}, {"missing-tests"}),
        ({"environment/Answers.txt": b"x"}, {"answer-visible"}),
        ({"environment/copy.sh": GOOD["solution/solve.sh"]}, {"answer-visible"}),
        ({"environment/copy.sh": GOOD["tests/test.sh"]}, {"tests-visible"}),
        ({"environment/grader.py": b"x"}, {"grader-visible"}),
        ({"environment/grade.py": b"x"}, set()),
        ({"environment/test_app.py": b"x"}, {"tests-unprotected"}),
        ({"environment/checks/test_app.py": b"x"}, set()),
        ({"environment/a.spec.ts": b"x"}, {"tests-unprotected"}),
        ({"environment/.env.local": b"x"}, {"secret-present"}),
        ({"environment/a.txt": b"token ghp_0123456789abcdefghijABCDEFGHIJ012345"}, {"secret-present"}),
        ({"environment/.git/HEAD": b"ref"}, {"history-present"}),
        ({"environment/fix.patch": b"x"}, {"history-present"}),
        ({"environment/Dockerfile": b"FROM x\nENV ANSWER=42\n"}, {"answer-assigned"}),
        ({"environment/run.sh": b"  export GOLD=1\n"}, {"answer-assigned"}),
        ({"tests/check.py": b"EXPECTED = 1\n"}, set()),
        ({"task.toml": b"x = 1"}, {"no-network-policy"}),
        ({"task.toml": None}, {"no-manifest", "no-network-policy"}),
        ({"solution/solve.sh": None}, {"no-solution"}),
    ],
)
def test_each_planted_fault_is_found(files: dict[str, bytes | None], found: set[str]) -> None:
    """That one, and no other."""
    assert ids(files) == found


def test_a_link_that_leaves_is_found() -> None:
    """A file that stays is not reported."""
    assert ids({}, {"environment/out": True, "environment/in": False}) == {"escaping-symlink"}


def test_without_an_environment_the_agent_starts_with_everything() -> None:
    """Also in a directory without Harbor's layout, where tests and solutions need not be."""
    assert {"answer-visible", "tests-visible"} <= ids({"environment/app.py": None})
    free = audited(tree({"main.py": b"x", "gold.json": b"1"}))
    assert {each.id for each in free.findings} == {"answer-visible", "no-manifest", "no-network-policy"}
    assert free.score == 0.45


def test_the_same_instruction_twice_is_found() -> None:
    """Case and white space make no other task."""
    other = {**GOOD, "instruction.md": b"do  IT.\n"}
    assert same_instructions(
        [tree(GOOD), tree(other, name="u"), tree({**GOOD, "instruction.md": b"Else"}, name="v")]
    ) == {"t", "u"}


@pytest.mark.parametrize("name", sample_names())
def test_the_samples_are_trusted(name: str) -> None:
    """They are forked by the demo."""
    assert audited(read_tree(SAMPLES / name)).trusted


def test_a_directory_that_is_none_is_an_error(tmp_path: object) -> None:
    """No score for what is not there, is a file, or is empty."""
    from pathlib import Path

    folder = Path(str(tmp_path))
    (folder / "file").write_text("x")
    (folder / "empty").mkdir()
    for name in ("missing", "file", "empty"):
        with pytest.raises(TaskAuditError):
            read_tree(folder / name)


def test_links_are_told_apart_on_disk(tmp_path: object) -> None:
    """Absolute ones, ones that climb out, and chains of them."""
    from pathlib import Path

    folder = Path(str(tmp_path)) / "task"
    (folder / "environment").mkdir(parents=True)
    (folder / "task.toml").write_bytes(TOML)
    (folder / "environment" / "abs").symlink_to("/etc/passwd")
    (folder / "environment" / "up").symlink_to("../../other")
    (folder / "environment" / "in").symlink_to("../task.toml")
    (folder / "environment" / "chain").symlink_to("up")
    assert read_tree(folder).links == {
        "environment/abs": True, "environment/chain": True, "environment/in": False, "environment/up": True
    }  # fmt: skip


def test_a_link_inside_the_task_shows_what_it_leads_to(tmp_path: object) -> None:
    """An agent reads the solution through it."""
    from pathlib import Path

    folder = Path(str(tmp_path)) / "task"
    for path, content in GOOD.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "environment" / "notes").symlink_to("../solution")
    found = audited(read_tree(folder)).findings
    assert [(each.id, each.path) for each in found] == [("answer-visible", "environment/notes/solve.sh")]
