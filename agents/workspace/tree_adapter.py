"""Every name below a folder, for checks that must not skip anything: caches, dotfiles, links, pipes, sockets, huge
files.

Links are not followed, and no read blocks. The folder has the files of untrusted code, none of whose processes runs any
more.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agents.workspace.files import MAX_FILES, MAX_TOTAL, File, FileProblemError, stays_inside


def everything(root: Path, wanted: Callable[[str], bool]) -> dict[str, File | None]:
    """By path, every wanted name but folders; None for anything but a plain file or an inner link, and for a folder
    that cannot be entered. Raises FileProblemError if that is too much.
    """
    found: dict[str, File | None] = {}
    total = 0
    folders = [root]
    while folders:
        folder = folders.pop()
        for place in _names(folder):
            path = place.relative_to(root).as_posix()
            seen = _seen(place)
            if seen is not None and stat.S_ISDIR(seen.st_mode) and place != folder:
                folders.append(place)
            elif wanted(path):
                total += seen.st_size if seen is not None and stat.S_ISREG(seen.st_mode) else 0
                if len(found) >= MAX_FILES or total > MAX_TOTAL:
                    raise FileProblemError("too_large", f"more than {MAX_FILES} files or {MAX_TOTAL} bytes")
                found[path] = None if seen is None else _file(place, path, seen.st_mode)
    return dict(sorted(found.items()))


def _names(folder: Path) -> list[Path]:
    """The names in a folder; the folder itself when it cannot be entered, whatever is tried."""
    for permit in (False, True):
        with suppress(OSError):
            if permit:
                folder.chmod(0o700)
            return list(folder.iterdir())
    return [folder]


def _seen(place: Path) -> os.stat_result | None:
    """The kind of the name; None if it cannot be reached, for example because it is too long."""
    with suppress(OSError):
        return place.lstat()
    return None


def _file(place: Path, path: str, mode: int) -> File | None:
    with suppress(OSError, UnicodeEncodeError):
        path.encode()
        if stat.S_ISLNK(mode):
            target = str(place.readlink())
            return File(target.encode(), link=True) if stays_inside(path, target) else None
        if stat.S_ISREG(mode):
            if not os.access(place, os.R_OK):
                place.chmod(mode | 0o400)
            return File(place.read_bytes(), executable=bool(mode & 0o100))
    return None
