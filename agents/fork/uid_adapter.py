"""Users of the machine that sandboxes run as when root starts them: each living sandbox has its own.

No program and no file of the machine belongs to them, so that root inside a sandbox has no rights outside, and the
limit of processes counts one sandbox alone. A lock marks each pair as taken; a runner that dies loses its locks.
"""

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agents.fork.sandbox import SandboxError

FIRST_UID = 2_000_000_000
"""Beyond the numbers that distributions, directories, systemd (up to 1,879,048,191) and container tools use; below
2**31.
"""

PAIRS = 4096
"""How many sandboxes can live at once on a machine."""


class Users(NamedTuple):
    """A sandbox's users: root inside, and the reporter of tests that run apart. Their groups have the same numbers."""

    uids: tuple[int, int]
    place: Path
    lock: int

    def release(self) -> None:
        """Give them back."""
        self.place.unlink(missing_ok=True)
        os.close(self.lock)


def first_usable(wanted: int) -> int | None:
    """The first number of a range that exists here; None where this process is root in name only."""
    return first_mapped(wanted, [Path(f"/proc/self/{kind}_map").read_text() for kind in ("uid", "gid")])


def first_mapped(wanted: int, maps: list[str]) -> int | None:
    """The wanted number if its range is mapped; in a container with fewer users, one near its last; None if there is
    one user only.
    """
    ranges = [_ranges(each) for each in maps]
    if all(any(start <= wanted and wanted + 2 * PAIRS <= end for start, end in each) for each in ranges):
        return wanted
    last = min(max(end for _, end in each) for each in ranges) - 1024  # 65534 is the user `nobody`
    return last - 2 * PAIRS if last > 4 * PAIRS else None


def _ranges(mapped: str) -> list[tuple[int, int]]:
    lines = [line.split() for line in mapped.splitlines()]
    return [(int(inside), int(inside) + int(length)) for inside, _, length in lines]


def claim(first: int) -> Users:
    """Take a pair that no living sandbox uses. Raises SandboxError."""
    folder = _locks()
    for uid in range(first, first + 2 * PAIRS, 2):
        place = folder / str(uid)
        lock = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place.stat().st_ino == os.fstat(lock).st_ino:  # it was given back just now
                return Users((uid, uid + 1), place, lock)
        os.close(lock)
    raise SandboxError(f"{PAIRS} sandboxes live on this machine; end one")


def _locks() -> Path:
    """A folder that only root writes to, the same for every runner on the machine."""
    base = Path("/run") if os.access("/run", os.W_OK) else Path(tempfile.gettempdir())
    folder = base / "braid-uids"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise SandboxError(f"{folder} belongs to another user; remove it")
    return folder
