"""Files that last: replaced as a whole or not at all, and known by their digests."""

import os
from hashlib import file_digest
from pathlib import Path

PARTIAL = ".part"


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as source:
        return file_digest(source, "sha256").hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file at once: its readers see the old content or the new."""
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
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
