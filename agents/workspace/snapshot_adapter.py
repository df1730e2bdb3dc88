"""The store of snapshots on disk: named by their content, written whole or not at all, checked when read."""

import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path

from agents.workspace.files import MAX_FILES, MAX_TOTAL, File, Files
from agents.workspace.snapshot import SCHEME, SnapshotError, pack, reference, unpack
from schemas.events import Workspace

MAX_ARCHIVE = MAX_TOTAL + 2048 * MAX_FILES
"""Bytes of contents and of what tar adds to each file."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class SnapshotStore:
    """Keeps snapshots below a folder. The same files are kept once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, files: Files) -> Workspace:
        """Keep a workspace; returns what goes on the log. Raises SnapshotError."""
        archive = pack(files)
        kept = reference(archive)
        path = self._path(kept.digest)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(archive)
                    out.flush()
                    os.fsync(out.fileno())
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        return kept

    def load(self, workspace: Workspace) -> dict[str, File]:
        """The files of a snapshot, if they are what the digest says. Raises SnapshotError."""
        if not _DIGEST.fullmatch(workspace.digest) or workspace.uri != SCHEME + workspace.digest:
            raise SnapshotError(f"{workspace.uri}: not a snapshot of this store (expected {SCHEME}<sha-256>)")
        path = self._path(workspace.digest)
        try:
            if path.stat().st_size > MAX_ARCHIVE:
                raise SnapshotError(f"{path}: over {MAX_ARCHIVE} bytes")
            archive = path.read_bytes()
        except OSError as error:
            raise SnapshotError(f"{workspace.uri}: not in {self._folder}: {error.strerror}") from None
        if sha256(archive).hexdigest() != workspace.digest:
            raise SnapshotError(f"{path}: the content is not what its name says; it was changed or damaged")
        return unpack(archive)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.tar"
