"""The files of a workspace as values: paths that stay inside, contents, and whether a file may be executed."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

from schemas.errors import BraidError

MAX_PATH = 1024
"""Characters of a path."""

MAX_FILES = 20_000
MAX_TOTAL = 256 * 1024 * 1024
"""Bytes of all files of a workspace that is kept or restored."""

LEFT_OUT = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".git"})
"""Folders that tools make and that no verifier may depend on: not part of a workspace."""


class FileProblemError(BraidError):
    """A file of a workspace that cannot be read or written as requested; the agent gets it as the tool's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class File(NamedTuple):
    """A file, or a link to one inside the same workspace."""

    content: bytes
    """Of a link: its target, relative to its own folder."""
    executable: bool = False
    link: bool = False


Files = Mapping[str, File]
"""Files by path: relative, with forward slashes."""


def checked(path: str) -> str:
    """A path that stays inside its workspace, in its plain form. Raises FileProblemError for any other path."""
    if not path or len(path) > MAX_PATH or "\0" in path:
        raise FileProblemError("bad_path", f"not a usable path: {path[:80]!r}")
    parts: list[str] = []
    for part in path.removeprefix("./").split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            raise FileProblemError("bad_path", f"{path}: a path may not lead out of the workspace")
        parts.append(part)
    if path.startswith("/"):
        raise FileProblemError("bad_path", f"{path}: a path is relative to the workspace")
    return "/".join(parts) or "."


def is_kept(path: str) -> bool:
    """Whether a file is part of a workspace."""
    return LEFT_OUT.isdisjoint(path.split("/"))


def stays_inside(path: str, target: str) -> bool:
    """Whether the target of a link at `path` is in the same workspace."""
    if target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
            if depth < 0:
                return False
        elif part not in ("", "."):
            depth += 1
    return True


def parents(path: str) -> list[str]:
    """The parent folders of a path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def digest(files: Files, among: Iterable[str] | None = None) -> str:
    """SHA-256 over names, kinds and contents, in the order of names."""
    total = sha256()
    for path in sorted(files if among is None else among):
        file = files[path]
        kind = b"l" if file.link else b"x" if file.executable else b"f"
        total.update(path.encode() + b"\0" + kind + sha256(file.content).digest())
    return total.hexdigest()
