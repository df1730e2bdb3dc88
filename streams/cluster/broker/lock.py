"""One process at a time in a directory: a lock file that the kernel frees when its holder ends, however it ends.

The file itself stays: deleting it would let two processes hold "the" lock on two different files.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold `path` as a lock; says so once when another process has it, and then waits for that one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the processes that are started under it: Python opens files close-on-exec.
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that holds {path} ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
