"""Which files lie in a sandbox when a branch is tested: the agent's own, outputs of its build, and pristine protected ones.

Protected files always come from the task. Bytecode is never copied: a file in `__pycache__` can replace a module.
"""

from collections.abc import Mapping

from agents.fork.task import Task
from agents.workspace.files import File, Files, parents

BYTECODE = "__pycache__"

CACHES = frozenset({".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Folders that tools create where they run, and that nothing is loaded from: in a protected folder they do not count as
tampering.
"""


def laid_out(task: Task, files: Files) -> dict[str, File]:
    """The agent's files, with the original task's protected files over them; conflicting files are dropped."""
    pristine = _pristine(task)
    folders = _folders(pristine)
    kept = {
        path: file
        for path, file in files.items()
        if not task.is_protected(path) and path not in folders and BYTECODE not in path.split("/")
        if pristine.keys().isdisjoint(parents(path))
    }
    return kept | pristine


def with_outputs(task: Task, files: Files, made: Mapping[str, File | None]) -> dict[str, File]:
    """The laid out files, and the declared outputs of install and build. No output replaces a folder, or lies
    below a file or a link; anything but a plain file or an inner link (None) is dropped.
    """
    own = laid_out(task, files)
    outputs = {path: file for path, file in made.items() if file is not None and task.is_output(path)}
    folders = _folders(own)
    ends = {path for path, file in outputs.items() if file.link} | own.keys()
    kept = {path: file for path, file in outputs.items() if path not in folders and ends.isdisjoint(parents(path))}
    return laid_out(task, own | kept)


def protected_intact(task: Task, files: Files) -> bool | None:
    """Whether the agent left the protected files unchanged, and added none; None if nothing is protected."""
    if not task.braid.protected:
        return None
    return _pristine(task) == {path: file for path, file in files.items() if task.is_protected(path)}


def is_tampered(task: Task, found: Mapping[str, File | None]) -> bool:
    """Whether protected files changed; `found`: everything at protected places, None for anything but a plain file."""
    pristine = _pristine(task)
    seen = {path: file for path, file in found.items() if path in pristine or CACHES.isdisjoint(path.split("/"))}
    return seen != pristine


def _pristine(task: Task) -> dict[str, File]:
    return {path: file for path, file in task.start.items() if task.is_protected(path)}


def _folders(files: Files) -> set[str]:
    return {parent for path in files for parent in parents(path)}
