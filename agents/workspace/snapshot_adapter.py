"""The store of snapshots, and of screenshots of them, on disk: named by their content, written whole or not at all, checked when read.

Each snapshot has a note of the attempts from which it was taken. Only a runner with access to the store can write it,
so a branch cannot claim the snapshot of another one on the log.
"""

import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path

import orjson

from agents.workspace.files import MAX_FILES, MAX_TOTAL, File, Files
from agents.workspace.snapshot import SCHEME, SnapshotError, TakenOf, pack, reference, unpack
from schemas.events import Workspace

MAX_ARCHIVE = MAX_TOTAL + 2048 * MAX_FILES
"""Bytes of contents and of tar's overhead for each file."""

MAX_PICTURE = 16 * 1024 * 1024
PNG = b"\x89PNG\r\n\x1a\n"

_DIGEST = re.compile(r"[0-9a-f]{64}")


class SnapshotStore:
    """Keeps snapshots below a folder. Equal files are stored once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, files: Files, taken_of: TakenOf) -> Workspace:
        """Store the workspace of an attempt; return the reference for the log. Raises SnapshotError."""
        archive = pack(files)
        kept = reference(archive)
        _keep(self._path(kept.digest), archive)
        self._claim(kept.digest, taken_of)
        return kept

    def _claim(self, digest: str, taken_of: TakenOf) -> None:
        """Note from which attempt a snapshot was taken; whole lines are appended, so that parallel runners lose none."""
        with self._claims(digest).open("ab", buffering=0) as claims:
            claims.write(orjson.dumps([*taken_of]) + b"\n")
            os.fsync(claims.fileno())

    def _was_taken_of(self, digest: str, attempt: TakenOf) -> bool:
        try:
            lines = self._claims(digest).read_bytes().splitlines()
        except OSError:
            return False
        return orjson.dumps([*attempt]) in lines

    def load(self, workspace: Workspace, taken_of: TakenOf | None = None) -> dict[str, File]:
        """The files of a snapshot, if they match the digest, and were taken from this attempt. Raises SnapshotError."""
        if not _DIGEST.fullmatch(workspace.digest) or workspace.uri != SCHEME + workspace.digest:
            raise SnapshotError(f"{workspace.uri}: not a snapshot of this store (expected {SCHEME}<sha-256>)")
        path = self._path(workspace.digest)
        if taken_of is not None and path.exists() and not self._was_taken_of(workspace.digest, taken_of):
            branch = f"branch {taken_of.branch_index} (attempt {taken_of.attempt}) of {taken_of.rollout_id}"
            raise SnapshotError(f"{workspace.uri}: no runner says that it was taken of {branch}")
        return unpack(self.archive(workspace.digest))

    def archive(self, digest: str) -> bytes:
        """The stored snapshot, a tar, if it matches the digest. Raises SnapshotError."""
        if not _DIGEST.fullmatch(digest):
            raise SnapshotError(f"{digest[:80]!r} is no digest: 64 hexadecimal digits are expected")
        path = self._path(digest)
        try:
            if path.stat().st_size > MAX_ARCHIVE:
                raise SnapshotError(f"{path}: over {MAX_ARCHIVE} bytes")
            archive = path.read_bytes()
        except OSError as error:
            raise SnapshotError(f"{SCHEME}{digest}: not in {self._folder}: {error.strerror}") from None
        if sha256(archive).hexdigest() != digest:
            raise SnapshotError(f"{path}: the content is not what its name says; it was changed or damaged")
        return archive

    def keep_picture(self, picture: bytes) -> str:
        """Keep a screenshot of a workspace; returns its digest, by which its verdict names it."""
        digest = sha256(picture).hexdigest()
        _keep(self._path(digest).with_suffix(".png"), picture)
        return digest

    def picture(self, digest: str) -> bytes | None:
        """The screenshot with a digest, a PNG; None if it is missing or was changed."""
        if not _DIGEST.fullmatch(digest):
            return None
        path = self._path(digest).with_suffix(".png")
        try:
            content = path.read_bytes() if path.stat().st_size <= MAX_PICTURE else b""
        except OSError:
            return None
        return content if content.startswith(PNG) and sha256(content).hexdigest() == digest else None

    def _claims(self, digest: str) -> Path:
        return self._path(digest).with_suffix(".of")

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.tar"


def _keep(path: Path, content: bytes) -> None:
    """Write a file atomically; an existing one has this content already."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
