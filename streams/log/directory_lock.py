"""An output directory that one process at a time writes to: a lock that the kernel frees, however its holder ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import BraidError

EXPORT_LOCK, REPLAY_LOCK, RUN_LOCK = ".export.lock", ".replay.lock", ".run.lock"
LOCKS = frozenset({EXPORT_LOCK, REPLAY_LOCK, RUN_LOCK})
"""Held while a command writes to a directory. The files stay when it ends, and are empty."""


@contextmanager
def held(folder: Path, lock: str, what: str, error: type[BraidError]) -> Iterator[None]:
    """Make a directory and keep others out of it. Raises `error` when it cannot be made, or another `what` is at work there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / lock).open("ab")
    except FileExistsError:
        raise error(f"--out {folder} is a file; give a directory") from None
    except OSError as problem:
        raise error(f"--out {folder}: {problem.strerror}; give a directory that can be written") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(f"{folder}: another {what} writes to it; wait for it, or give another directory") from None
        yield
