"""Task directories, read for an audit."""

import os
from collections.abc import Iterator
from pathlib import Path

from agents.audit.task_lint import TaskTree
from agents.workspace.files import MAX_FILES, MAX_TOTAL
from schemas.errors import BraidError


class TaskAuditError(BraidError):
    """A task that cannot be audited."""


def read_tree(folder: Path) -> TaskTree:
    """Read a task directory. Raises TaskAuditError if it is not a task."""
    if not folder.is_dir():
        raise TaskAuditError(
            f"{folder}: {'not a directory' if folder.exists() else 'no such directory'}; give the directory of a task"
        )
    root, total = Path(os.path.realpath(folder)), 0
    files, links, folders = dict[str, bytes](), dict[str, bool](), set[str]()
    for path in _walk(folder):
        own = path.relative_to(folder).as_posix()
        if path.is_symlink():
            target = Path(os.path.realpath(path))
            links[own] = not target.is_relative_to(root)
        if path.is_dir():
            folders.add(own)
        elif path.is_file() and not links.get(own):  # an agent reads through links that stay inside
            total += path.stat().st_size
            if len(files) >= MAX_FILES or total > MAX_TOTAL:
                raise TaskAuditError(
                    f"{folder}: more than {MAX_FILES:,} files or {MAX_TOTAL >> 20} MiB; is it one task?"
                )
            files[own] = path.read_bytes()
    if not files and not links:
        raise TaskAuditError(f"{folder}: it is empty")
    return TaskTree(str(folder), files, links, frozenset(folders))


def _walk(folder: Path) -> Iterator[Path]:
    """Everything below a folder, in order; the files of a linked folder of the task once, below the link."""
    root = Path(os.path.realpath(folder))
    for parent, names, bases in os.walk(folder):
        names.sort()
        for name in [*names, *sorted(bases)]:
            path = Path(parent) / name
            yield path
            target = Path(os.path.realpath(path)) if path.is_symlink() else None
            if target is not None and target.is_dir() and target != root and target.is_relative_to(root):
                yield from (
                    path / each.relative_to(target) for each in sorted(target.rglob("*")) if not each.is_symlink()
                )
