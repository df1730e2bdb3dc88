"""An output directory that one process at a time writes to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import BraidError
from streams.cluster.locks.file_lock import LockedError, locked

EXPORT_LOCK, REPLAY_LOCK, RUN_LOCK = ".export.lock", ".replay.lock", ".run.lock"
LOCKS = frozenset({EXPORT_LOCK, REPLAY_LOCK, RUN_LOCK})
"""Locks that a command holds while it writes to a directory. The files stay when it ends, and are empty."""


@contextmanager
def held(folder: Path, lock: str, what: str, error: type[BraidError]) -> Iterator[None]:
    """Create a directory and lock it. Raises `error` if it cannot be created, or another `what` is running there."""
    try:
        file = locked(folder / lock)
    except LockedError:
        raise error(f"{folder}: another {what} writes to it; wait for it, or give another directory") from None
    except FileExistsError:
        raise error(f"--out {folder} is a file; give a directory") from None
    except OSError as problem:
        raise error(f"--out {folder}: {problem.strerror}; give a directory that can be written") from None
    with file:
        yield
