"""A look at a folder that leaves nothing out."""

import os
import socket
from pathlib import Path

import pytest

from agents.workspace.files import MAX_FILES, MAX_TOTAL, File, FileProblemError
from agents.workspace.tree_adapter import everything


def test_every_kind_of_name_is_seen(tmp_path: Path) -> None:
    """Caches, dotfiles, links, pipes, sockets, names that are no text, files and folders without permissions."""
    for path in ("a/__pycache__/m.pyc", ".git/config", "node_modules/x/.bin/y", ".hidden", "locked/inside", "closed"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "closed").chmod(0)
    (tmp_path / "locked").chmod(0)
    (tmp_path / "inside").symlink_to("a/b")
    (tmp_path / "outside").symlink_to("../x")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
    (tmp_path / os.fsdecode(b"\xff")).write_text("")
    (tmp_path / "run").write_text("")
    (tmp_path / "run").chmod(0o755)
    assert everything(tmp_path, lambda _: True) == {
        ".git/config": File(b".git/config"),
        ".hidden": File(b".hidden"),
        "a/__pycache__/m.pyc": File(b"a/__pycache__/m.pyc"),
        "closed": File(b"closed"),
        "inside": File(b"a/b", link=True),
        "locked/inside": File(b"locked/inside"),
        "node_modules/x/.bin/y": File(b"node_modules/x/.bin/y"),
        "outside": None,
        "pipe": None,
        "run": File(b"", executable=True),
        "socket": None,
        os.fsdecode(b"\xff"): None,
    }
    assert list(everything(tmp_path, lambda path: path.startswith("a/"))) == ["a/__pycache__/m.pyc"]


def test_a_folder_too_deep_to_enter_is_seen(tmp_path: Path) -> None:
    """A path that is longer than the system's longest hides nothing."""
    before = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(30):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
        Path("hidden").write_text("")
        found = everything(tmp_path, lambda _: True)
    finally:
        os.chdir(before)
    assert list(found.values()) == [None]


@pytest.mark.parametrize("size", [MAX_TOTAL + 1, 2**40])
def test_huge_and_sparse_files_are_refused_before_they_are_read(tmp_path: Path, size: int) -> None:
    """Unless they are not wanted."""
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(size)
    with pytest.raises(FileProblemError, match="bytes"):
        everything(tmp_path, lambda _: True)
    assert everything(tmp_path, lambda path: path != "huge") == {}


def test_more_files_than_a_workspace_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent cannot keep a verifier reading."""
    assert MAX_FILES >= 1000
    monkeypatch.setattr("agents.workspace.tree_adapter.MAX_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text("")
    with pytest.raises(FileProblemError, match="files"):
        everything(tmp_path, lambda _: True)
