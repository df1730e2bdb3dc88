"""Task directories, read for an audit."""

import os
from pathlib import Path

from agents.audit.task_lint import TaskTree
from agents.workspace.files import MAX_FILES, MAX_TOTAL
from schemas.errors import BraidError


class TaskAuditError(BraidError):
    """A task that cannot be audited."""


def read_tree(folder: Path) -> TaskTree:
    """Read a task directory. Raises TaskAuditError when it is none."""
    if not folder.is_dir():
        raise TaskAuditError(
            f"{folder}: {'not a directory' if folder.exists() else 'no such directory'}; give the directory of a task"
        )
    root, total = os.path.realpath(folder), 0
    files, links, folders = dict[str, bytes](), dict[str, bool](), set[str]()
    for parent, names, bases in os.walk(folder):
        names.sort()
        for name in [*names, *sorted(bases)]:
            path = Path(parent) / name
            own = path.relative_to(folder).as_posix()
            if path.is_symlink():
                target = os.path.realpath(path)
                links[own] = not (target == root or target.startswith(root + os.sep))
            elif path.is_dir():
                folders.add(own)
            elif path.is_file():
                total += path.stat().st_size
                if len(files) >= MAX_FILES or total > MAX_TOTAL:
                    raise TaskAuditError(
                        f"{folder}: more than {MAX_FILES:,} files or {MAX_TOTAL >> 20} MiB; is it one task?"
                    )
                files[own] = path.read_bytes()
    if not files and not links:
        raise TaskAuditError(f"{folder}: it is empty")
    return TaskTree(str(folder), files, links, frozenset(folders))
