"""Workspace snapshots as bytes: a tar archive that is a function of names and contents alone.

Names are sorted, times and owners left out, so that the same files have the same digest on every machine. `unpack`
trusts nothing: it refuses an archive that is too large, or has a name that leads outside, or anything but files and
inner links.
"""

import io
import tarfile
from hashlib import sha256
from typing import NamedTuple

from agents.workspace.files import (
    MAX_FILES,
    MAX_TOTAL,
    File,
    FileProblemError,
    Files,
    checked,
    is_kept,
    parents,
    stays_inside,
)
from schemas.errors import BraidError
from schemas.events import Workspace

SCHEME = "snapshot:"
"""The URI names content, not a place: any process that has the store finds it there."""


class TakenOf(NamedTuple):
    """The attempt of a branch whose workspace was kept."""

    rollout_id: str
    branch_index: int
    attempt: int = 0


class SnapshotError(BraidError):
    """A workspace that cannot be kept or restored: too large, damaged, or with names that lead outside."""


def pack(files: Files) -> bytes:
    """The archive of a workspace. Raises SnapshotError if it is too large."""
    kept = {path: file for path, file in sorted(files.items()) if is_kept(path)}
    total = sum(len(file.content) for file in kept.values())
    if len(kept) > MAX_FILES or total > MAX_TOTAL:
        raise SnapshotError(
            f"the workspace has {len(kept)} files of {total} bytes; a snapshot takes {MAX_FILES} and {MAX_TOTAL}"
        )
    return tar_of(kept)


def tar_of(files: Files) -> bytes:
    """An archive of files in their order, without times and owners."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, file in files.items():
            entry = tarfile.TarInfo(path)
            entry.mode = 0o755 if file.executable else 0o644
            if file.link:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.content.decode()
                archive.addfile(entry)
            else:
                entry.size = len(file.content)
                archive.addfile(entry, io.BytesIO(file.content))
    return out.getvalue()


def unpack(archive: bytes) -> dict[str, File]:
    """The files of an archive. Raises SnapshotError if it is damaged or not ours."""
    found: dict[str, File] = {}
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as source:
            for entry in source:
                path = checked(entry.name)
                total += entry.size
                if path in found or len(found) >= MAX_FILES or total > MAX_TOTAL:
                    raise SnapshotError(f"{path}: twice, or beyond {MAX_FILES} files and {MAX_TOTAL} bytes")
                found[path] = _read(source, entry, path)
    except (tarfile.TarError, FileProblemError, UnicodeError, EOFError, ValueError) as error:
        raise SnapshotError(f"not a usable snapshot: {error}") from None
    for path in found:
        if any(parent in found for parent in parents(path)):
            raise SnapshotError(f"{path}: lies below something that is not a folder")
    return found


def reference(archive: bytes) -> Workspace:
    """The fields that go on a branch's last slice."""
    digest = sha256(archive).hexdigest()
    return Workspace(uri=SCHEME + digest, digest=digest)


def _read(source: tarfile.TarFile, entry: tarfile.TarInfo, path: str) -> File:
    if entry.issym() and stays_inside(path, entry.linkname):
        return File(entry.linkname.encode(), link=True)
    content = source.extractfile(entry) if entry.isreg() else None
    if content is None:
        raise SnapshotError(f"{path}: neither a file nor a link inside the workspace")
    return File(content.read(), executable=bool(entry.mode & 0o100))
