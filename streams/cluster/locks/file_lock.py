"""A lock file, held by one process at a time. The kernel releases it when its holder ends, however it ends.

The file itself is never deleted: otherwise two processes could hold "the" lock on two different files.
"""

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from schemas.errors import BraidError


class LockedError(BraidError):
    """Another process holds the lock."""


def locked(path: Path, say: Callable[[str], None] | None = None) -> BinaryIO:
    """Open a file and lock it until it is closed. Raises LockedError if another process holds it.

    With `say` it reports that once, and then waits for the other process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the processes that are started under it: Python opens files close-on-exec.
    file = path.open("ab+")
    try:
        _lock(file, path, say)
    except BaseException:
        file.close()
        raise
    return file


def _lock(file: BinaryIO, path: Path, say: Callable[[str], None] | None) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if say is None:
            raise LockedError(f"another process holds {path}") from None
        say(f"waiting for another process that holds {path} ...")
        fcntl.flock(file, fcntl.LOCK_EX)
