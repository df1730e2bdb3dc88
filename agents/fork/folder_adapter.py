"""Files below a folder that untrusted code has written to: no path and no link leads out of it.

The folder is a descriptor: it may lie in a file system that only a sandbox has. Nothing runs in it meanwhile.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agents.fork.kernel_adapter import open_beneath
from agents.workspace.files import MAX_FILES, MAX_TOTAL, File, FileProblemError, checked, is_kept, stays_inside

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


MAX_NESTED = 100
"""Folders inside of folders: as many descriptors are open at once."""


class Folder:
    """The files of a folder. New files belong to `owner`."""

    def __init__(self, descriptor: int, owner: int | None = None) -> None:
        self.descriptor = descriptor
        self._owner = owner

    def read(self, path: str) -> bytes:
        """A file's content. Raises FileProblemError."""
        with self._opened(path, os.O_RDONLY | os.O_NONBLOCK, "unreadable") as opened:  # a pipe would keep us waiting
            seen = os.fstat(opened)
            if not stat.S_ISREG(seen.st_mode):
                raise FileProblemError("not_a_file", f"not a file: {path}")
            if seen.st_size > MAX_TOTAL:
                raise FileProblemError("too_large", f"{path}: over {MAX_TOTAL} bytes")
            return _read(opened)

    def write(self, path: str, file: File) -> None:
        """Create or replace a file, with its folders. Raises FileProblemError."""
        parent, _, name = checked(path).rpartition("/")
        self.make(parent or ".")
        if file.link:
            with self._opened(parent or ".", FOLDER, "unwritable") as opened:
                os.symlink(file.content, name, dir_fd=opened)
                if self._owner is not None:
                    os.chown(name, self._owner, self._owner, dir_fd=opened, follow_symlinks=False)
            return
        with self._opened(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, "unwritable") as opened:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise FileProblemError("not_a_file", f"not a file: {path}")
            os.ftruncate(opened, 0)
            left = memoryview(file.content)
            while left:
                left = left[os.write(opened, left) :]
            self._settle(opened, 0o755 if file.executable else 0o644)

    def make(self, path: str, owner: int | None = None) -> None:
        """Create a folder, and its parents."""
        with suppress(FileProblemError), self._opened(path, FOLDER, "unwritable"):
            return
        parent, _, name = path.rpartition("/")
        self.make(parent or ".")
        with self._opened(parent or ".", FOLDER, "unwritable") as opened:
            os.mkdir(name, dir_fd=opened)
        with self._opened(path, FOLDER, "unwritable") as opened:
            self._settle(opened, 0o755, owner)

    def files(self, under: str = ".", most: int = MAX_FILES, most_bytes: int = MAX_TOTAL) -> dict[str, File]:
        """All files below a folder, by their path. Raises FileProblemError."""
        found: dict[str, File] = {}
        total = 0
        with self._opened(under, FOLDER, "unreadable") as start:
            for parent, folders, names, opened in os.fwalk(".", dir_fd=start):
                if parent.count("/") > MAX_NESTED:  # the walk itself goes down by recursion
                    raise FileProblemError("too_large", f"folders nested deeper than {MAX_NESTED}")
                folders[:] = sorted(name for name in folders if is_kept(name))
                links = [
                    name
                    for name in folders
                    if stat.S_ISLNK(os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode)
                ]
                for name in sorted([*names, *links]):
                    path = checked(os.path.join(under, parent, name))  # noqa: PTH118 - in the folder
                    file = _file_at(opened, name, path, most_bytes)
                    if file is None:
                        continue
                    found[path] = file
                    total += len(file.content)
                    if len(found) > most or total > most_bytes:
                        raise FileProblemError("too_large", f"more than {most} files or {most_bytes} bytes")
        return dict(sorted(found.items()))

    def clear(self) -> None:
        """Remove everything in it."""
        for place in self.path.iterdir():
            remove(place)

    @property
    def path(self) -> Path:
        """The folder's path in this process. Paths below it are not checked."""
        return Path(f"/proc/self/fd/{self.descriptor}")

    def close(self) -> None:
        """Close the descriptor."""
        with suppress(OSError):
            os.close(self.descriptor)

    def _settle(self, opened: int, mode: int, owner: int | None = None) -> None:
        os.fchmod(opened, mode)
        if (owner or self._owner) is not None:
            os.fchown(opened, owner or self._owner or 0, owner or self._owner or 0)

    @contextmanager
    def _opened(self, path: str, flags: int, code: str) -> Iterator[int]:
        """A path's descriptor; trouble with it, or while it is open, is the caller's."""
        try:
            opened = open_beneath(self.descriptor, checked(path), flags, 0o644 if flags & os.O_CREAT else 0)
        except OSError as error:
            raise _problem(path, error, code) from None
        try:
            yield opened
        except OSError as error:
            raise _problem(path, error, code) from None
        finally:
            os.close(opened)


def _problem(path: str, error: OSError, code: str) -> FileProblemError:
    match error.errno:
        case errno.ENOENT if code == "unreadable":
            return FileProblemError("not_found", f"no such file: {path}")
        case errno.EXDEV | errno.ELOOP:
            return FileProblemError("bad_path", f"{path}: leads out of the workspace")
        case errno.EISDIR | errno.ENOTDIR:
            return FileProblemError("not_a_file", f"not a file: {path}")
        case number:
            return FileProblemError(code, f"{path}: {os.strerror(number or 0)}")


def _read(opened: int) -> bytes:
    with os.fdopen(os.dup(opened), "rb") as source:
        return source.read(MAX_TOTAL + 1)


def _file_at(folder: int, name: str, path: str, most_bytes: int) -> File | None:
    """A name's file, if it is part of a workspace: no pipes, no links to elsewhere, no names that are not text."""
    try:
        path.encode()
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(seen.st_mode):
            target = os.readlink(name, dir_fd=folder)
            return File(target.encode(), link=True) if stays_inside(path, target) else None
        if not stat.S_ISREG(seen.st_mode):
            return None
        if seen.st_size > most_bytes:
            raise FileProblemError("too_large", f"{path}: over {most_bytes} bytes")
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            return File(_read(opened), executable=bool(seen.st_mode & 0o100))
        finally:
            os.close(opened)
    except (OSError, UnicodeEncodeError):
        return None


def remove(place: Path) -> None:
    """Remove a file or folder, whatever permissions were set inside; no link is followed."""
    if place.is_symlink() or not place.is_dir():
        place.unlink(missing_ok=True)
        return
    for parent, folders, _ in os.walk(place):
        for name in folders:
            inner = Path(parent, name)
            if not inner.is_symlink():
                inner.chmod(0o700)
    shutil.rmtree(place)
