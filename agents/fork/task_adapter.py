"""Reads task directories from disk: in full, once, with errors that name the file and the field."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from agents.fork.task import MAX_INSTRUCTION, NOT_WORKSPACE, Task, TaskError, TaskToml
from agents.workspace.files import MAX_FILES, MAX_PATH, MAX_TOTAL, File, Files, is_kept, stays_inside
from schemas.codec.body import first_problem

SAMPLES = Path(__file__).parent / "tasks"
"""The tasks that come with the product; they are named without a path."""


def sample_names() -> list[str]:
    """The sample tasks of the product."""
    return sorted(path.name for path in SAMPLES.iterdir() if (path / "task.toml").is_file())


def find_task(name: str) -> Path:
    """The directory of a task: a path, or the name of a sample. Raises TaskError."""
    given = Path(name)
    if given.is_dir():
        return given
    if "/" not in name and (SAMPLES / name / "task.toml").is_file():
        return SAMPLES / name
    raise TaskError(
        f"{name}: neither a directory nor a sample task; the samples are {', '.join(sample_names())}, and a directory "
        "needs instruction.md, task.toml, environment/ and tests/"
    )


def load_task(folder: Path) -> Task:
    """A task from its directory. Raises TaskError."""
    instruction = _text(folder / "instruction.md")
    if not instruction.strip():
        raise TaskError(f"{folder / 'instruction.md'}: empty; write there what the agent is asked")
    if len(instruction.encode()) > MAX_INSTRUCTION:
        raise TaskError(f"{folder / 'instruction.md'}: over {MAX_INSTRUCTION} bytes")
    if not (folder / "environment").is_dir():
        raise TaskError(f"{folder / 'environment'}: missing; the files that the agent starts with belong there")
    start = read_files(folder / "environment")
    tests = read_files(folder / "tests") if (folder / "tests").is_dir() else {}
    options = _options(folder / "task.toml")
    if "build" in options.metadata.braid.required and "test.sh" not in tests:
        raise TaskError(f"{folder / 'tests' / 'test.sh'}: missing; it tests the work, and exits with 0 when it passes")
    return Task(
        name=folder.resolve().name,
        instruction=instruction.strip() + "\n",
        options=options,
        start={path: file for path, file in start.items() if path not in NOT_WORKSPACE},
        tests=tests,
    )


def read_workspace(folder: Path) -> dict[str, File]:
    """The files that a branch left, as a snapshot keeps them: links that lead outside, pipes and unusable names are left out.

    Raises TaskError if there are too many.
    """
    found: dict[str, File] = {}
    total = 0
    for path in _walk(folder, links=True):
        name = path.relative_to(folder).as_posix()
        if not is_kept(name) or not _is_usable(name) or not (path.is_symlink() or path.is_file()):
            continue
        if path.is_symlink():
            target = str(path.readlink())
            if stays_inside(name, target) and _is_usable(target):
                found[name] = File(target.encode(), link=True)
            continue
        content = path.read_bytes()
        total += len(content)
        if len(found) >= MAX_FILES or total > MAX_TOTAL:
            raise TaskError(f"{folder}: more than {MAX_FILES} files or {MAX_TOTAL} bytes")
        found[name] = File(content, executable=bool(path.stat().st_mode & 0o100))
    return found


def _is_usable(name: str) -> bool:
    """Whether a path can be kept: short enough, and UTF-8."""
    return len(name) <= MAX_PATH and not any("\ud800" <= each <= "\udfff" for each in name)


def read_files(folder: Path) -> dict[str, File]:
    """All files below a folder, by path, in order. Raises TaskError if there are too many."""
    found: dict[str, File] = {}
    total = 0
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if not is_kept(name):
            continue
        if path.is_symlink():
            raise TaskError(f"{path}: a link; a task holds plain files only")
        content = path.read_bytes()
        total += len(content)
        if len(found) >= MAX_FILES or total > MAX_TOTAL:
            raise TaskError(f"{folder}: more than {MAX_FILES} files or {MAX_TOTAL} bytes")
        found[name] = File(content, executable=bool(path.stat().st_mode & 0o100))
    return found


def overlays(folder: Path) -> dict[str, Files]:
    """The solutions kept with a task: `solution`, and each of `broken/`."""
    found: dict[str, Files] = {}
    if (folder / "solution" / "files").is_dir():
        found["solution"] = read_files(folder / "solution" / "files")
    if (folder / "broken").is_dir():
        found |= {f"broken/{each.name}": read_files(each) for each in sorted((folder / "broken").iterdir())}
    return found


def _walk(folder: Path, *, links: bool = False) -> Iterator[Path]:
    """Every file, and with `links` every link to a folder. Folders nested deeper than any usable path are not entered."""
    waiting = [folder]
    while waiting:
        parent = waiting.pop()
        if len(parent.as_posix()) - len(folder.as_posix()) > MAX_PATH:
            continue
        entries = sorted(os.scandir(parent), key=lambda each: each.name)
        yield from (Path(each) for each in entries if not Path(each).is_dir() or (links and each.is_symlink()))
        waiting += [Path(each) for each in reversed(entries) if each.is_dir(follow_symlinks=False)]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise TaskError(f"{path}: missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read: {error}") from None


def _options(path: Path) -> TaskToml:
    try:
        return TaskToml.model_validate(tomllib.loads(_text(path)))
    except ValidationError as error:
        raise TaskError(f"{path}: {first_problem(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{path}: not TOML: {error}") from None
