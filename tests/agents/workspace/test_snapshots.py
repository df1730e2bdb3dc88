"""Snapshots: the same files are the same bytes, and an archive is not trusted."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.workspace.files import LEFT_OUT, File
from agents.workspace.snapshot import SnapshotError, TakenOf, pack, reference, unpack
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.events import Workspace

OWN = TakenOf("r", 0)
NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..") and name not in LEFT_OUT
)
FILES = st.dictionaries(NAMES, st.builds(File, st.binary(max_size=200), st.booleans(), st.just(False)), max_size=8)


@given(FILES, st.randoms())
def test_the_same_files_are_the_same_bytes(files: dict[str, File], chance: object) -> None:
    """In any order; and they come out as they went in."""
    shuffled = list(files.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert pack(dict(shuffled)) == pack(files)
    assert unpack(pack(files)) == files


def test_the_digest_is_fixed() -> None:
    """A snapshot taken anywhere has this digest."""
    files = {"b/é.txt": File(b"1"), "a.sh": File(b"#!/bin/sh\n", executable=True), "l": File(b"a.sh", link=True)}
    assert reference(pack(files)).digest == "ee01985bae1191cbdb9436ce7df440241141afa7232551068a9818f926a69bd3"
    assert pack(files | {"__pycache__/a.pyc": File(b"x"), "b/.git/HEAD": File(b"x")}) == pack(files)


def test_the_store_keeps_restores_and_finds_changes(tmp_path: Path) -> None:
    """Stored files come back; a file that was changed, is missing or is called otherwise is refused with its reason."""
    store, files = SnapshotStore(tmp_path), {"x": File(b"content")}
    kept = store.keep(files, OWN)
    assert store.keep(files, OWN) == kept
    assert store.load(kept) == files
    path = next(tmp_path.rglob("*.tar"))
    path.write_bytes(path.read_bytes().replace(b"content", b"CONTENT"))
    with pytest.raises(SnapshotError, match="changed or damaged"):
        store.load(kept)
    path.unlink()
    with pytest.raises(SnapshotError, match="not in"):
        store.load(kept)
    for uri, digest in (("file:///etc/passwd", kept.digest), ("snapshot:../../x", "../../x")):
        with pytest.raises(SnapshotError, match="not a snapshot"):
            store.load(Workspace(uri=uri, digest=digest))


@pytest.mark.parametrize("other", [TakenOf("r2", 0), TakenOf("r", 1), TakenOf("r", 0, 1)])
def test_a_snapshot_is_that_of_the_attempts_it_was_taken_of(tmp_path: Path, other: TakenOf) -> None:
    """A branch that names the files of another one gets nothing, until its runner has kept the same files for it."""
    store, files = SnapshotStore(tmp_path), {"x": File(b"content")}
    kept = store.keep(files, OWN)
    assert store.load(kept, OWN) == files
    with pytest.raises(SnapshotError, match="no runner says that it was taken of branch"):
        store.load(kept, other)
    assert store.keep(files, other) == kept
    assert store.load(kept, other) == store.load(kept, OWN) == files


def _tar(*entries: tuple[str, bytes, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    return out.getvalue()


@pytest.mark.parametrize(
    "archive",
    [
        _tar(("../evil", tarfile.REGTYPE, "")),
        _tar(("/etc/evil", tarfile.REGTYPE, "")),
        _tar(("a/../../evil", tarfile.REGTYPE, "")),
        _tar(("link", tarfile.SYMTYPE, "/etc")),
        _tar(("a/link", tarfile.SYMTYPE, "../../x")),
        _tar(("link", tarfile.SYMTYPE, "."), ("link/x", tarfile.REGTYPE, "")),
        _tar(("hard", tarfile.LNKTYPE, "x")),
        _tar(("device", tarfile.CHRTYPE, "")),
        _tar(("pipe", tarfile.FIFOTYPE, "")),
        _tar(("twice", tarfile.REGTYPE, ""), ("./twice", tarfile.REGTYPE, "")),
        b"not a tar archive at all",
        pack({"x": File(b"y" * 2000)})[:900],
    ],
)
def test_an_archive_that_leads_outside_or_is_damaged_is_refused(archive: bytes) -> None:
    """Nothing of it is taken."""
    with pytest.raises(SnapshotError):
        unpack(archive)


def test_a_workspace_beyond_the_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By packing and by unpacking."""
    archive = pack({"a": File(b"x" * 100), "b": File(b"")})
    monkeypatch.setattr("agents.workspace.snapshot.MAX_TOTAL", 99)
    with pytest.raises(SnapshotError):
        pack({"a": File(b"x" * 100)})
    with pytest.raises(SnapshotError):
        unpack(archive)
