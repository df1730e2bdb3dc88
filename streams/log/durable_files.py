"""Durable files: written atomically, with digests, and with their path in every error."""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".part"

BUFFER = 64 * 1024

TO_DO = {
    errno.ENOSPC: "free some space there, or give another directory",
    errno.EDQUOT: "free some of your quota there, or give another directory",
    errno.EROFS: "nothing can be written there; give another directory",
    errno.EACCES: "check who may write there, or give another directory",
    errno.EPERM: "check who may write there, or give another directory",
}
"""By the number of an error of the file system."""


class _Output(io.FileIO):
    """A file that its errors name: the system's do not, once it is open."""

    def write(self, data: bytes) -> int:  # type: ignore[override]  # typeshed's Buffer is of Python 3.12
        with naming(str(self.name)):
            return super().write(data)


def open_output(path: Path) -> BinaryIO:
    """Open a new file for writing. Every error contains its path, also one that a flush raises later."""
    return io.BufferedWriter(_Output(str(path), "wb"), BUFFER)  # type: ignore[type-var]  # for the same reason


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Add the path to errors of the file system that lack one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def problem_of(error: OSError) -> str:
    """One line for people: the path, the system's message, and what to do."""
    where = f"{error.filename}: " if error.filename else ""
    to_do = TO_DO.get(error.errno or 0)
    return f"{where}{error.strerror or error}" + (f"; {to_do}" if to_do else "")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as source:
        return file_digest(source, "sha256").hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file at once: its readers see the old content or the new."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        with naming(path), open_output(partial) as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
