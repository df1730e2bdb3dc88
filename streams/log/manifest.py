"""The manifest of a directory: its files with their digests, its rollouts, signed, and written last.

One shape for all directories that commands write. `braid run`, `replay`, `archive` and `judge again` keep it in
`log-manifest.json`, `braid export` in `manifest.json`. A directory without its manifest was not finished, and whatever a
manifest does not list is not part of its directory.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agents.evidence.signing import Json, SigningKey, sign_record
from agents.formats import FORMATS
from schemas.errors import BraidError
from schemas.versions import RECORDS, latest
from streams.log.directory_lock import LOCKS
from streams.log.durable_files import digest_of, write_whole
from streams.log.letters import CODE_VERSION

LOG_MANIFEST = "log-manifest.json"
"""The manifest of a log in files, and of the files of its sinks."""
DATASET_MANIFEST = "manifest.json"
"""The manifest of an exported dataset."""
CHECKPOINT = "checkpoint.json"
"""Of an exported dataset: written after the manifest, which states its digest."""
PROVENANCE = "provenance"
"""The folder of an exported dataset with the provenance of its rows."""

ARCHIVE = "archive"
"""The kind of manifest that `braid archive` writes."""

NOT_LISTED = "the manifest does not list it"


class ManifestError(BraidError):
    """A manifest that cannot be read, or a directory that is another command's."""


def write_manifest(path: Path, plain: Mapping[str, Any], key: SigningKey | None) -> None:
    """Write a manifest atomically; signed, if there is a key."""
    manifest = dict(plain) if key is None else sign_record(plain, key)
    write_whole(path, orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n")


def seal(home: Path, kind: str, files: Mapping[str, Json], key: SigningKey | None, members: Mapping[str, Any]) -> None:
    """Write the manifest of a directory with a log or sinks, after everything else."""
    versions = {name: latest(record).number for name, record in sorted(RECORDS.items())}
    about = {"kind": kind, "code_version": CODE_VERSION, "schema_versions": versions}
    write_manifest(home / LOG_MANIFEST, {**about, **members, "files": files}, key)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a log; empty if there is none. Raises ManifestError if it cannot be read."""
    path = directory / LOG_MANIFEST
    if not path.is_file():
        return {}
    try:
        plain = json.loads(path.read_bytes())
    except ValueError as error:
        raise ManifestError(f"{path}: not JSON: {error}") from None
    if not isinstance(plain, dict):
        raise ManifestError(f"{path}: not a manifest")
    return plain


def require_no_log_of_others(out: Path) -> None:
    """Raise ManifestError for a directory with the log of an archive or a replay: another command would remove it."""
    kind = read_manifest(out).get("kind")
    if kind in ("archive", "replay"):
        raise ManifestError(f"--out {out} holds the log of braid {kind}, which would be lost; give another directory")


def datasets_of(manifest: Mapping[str, Any]) -> list[str]:
    """The datasets inside a directory that its manifest names: folders with the names of formats."""
    names = manifest.get("formats")
    return [name for name in names if isinstance(name, str) and name in FORMATS] if isinstance(names, list) else []


def is_dataset(folder: Path) -> bool:
    """Whether a directory is an export; `braid verify` reports what it lacks."""
    return any((folder / name).is_file() for name in (DATASET_MANIFEST, CHECKPOINT)) or (folder / PROVENANCE).is_dir()


def described(
    folder: Path, paths: Iterable[Path], known: Mapping[Path, dict[str, Any]] | None = None
) -> dict[str, Json]:
    """Files of a directory as its manifest lists them: by name, digest and size; some are `known` from writing them."""
    return {
        path.relative_to(folder).as_posix(): (known or {}).get(path)
        or {"sha256": digest_of(path), "bytes": path.stat().st_size}
        for path in sorted(paths)
    }


def listed(manifest: Mapping[str, Any], member: str = "files") -> dict[str, Json]:
    """The files in a manifest, each with its entry; names that lead out of the directory are left out."""
    entries = manifest.get(member)
    if isinstance(entries, dict):
        pairs = [(name, said if isinstance(said, dict) else {"sha256": said}) for name, said in entries.items()]
    else:
        found = entries if isinstance(entries, list) else []
        pairs = [(entry.get("name"), entry) for entry in found if isinstance(entry, dict)]
    return {
        name: entry
        for name, entry in pairs
        if isinstance(name, str) and not Path(name).is_absolute() and ".." not in Path(name).parts
    }


def shortfall(path: Path, stated: Mapping[str, Any]) -> str:
    """Return whether a listed file is missing or truncated, by its size alone; empty if it is neither."""
    if not path.is_file():
        return "it is missing"
    size, held = stated.get("bytes"), path.stat().st_size
    return f"it has {held:,} bytes, and {size:,} are listed" if isinstance(size, int) and size != held else ""


def fault(path: Path, stated: Mapping[str, Any]) -> str:
    """Return how a listed file differs from its entry in the manifest; empty if it does not."""
    if path.is_symlink():
        return "it is a symbolic link, and not the file that was written"
    if not path.is_file():
        return "it is missing"
    return "" if digest_of(path) == stated.get("sha256") else "changed: its digest is not the one in the manifest"


class Strangers(NamedTuple):
    """Everything in a directory that its manifests do not list."""

    named: list[tuple[Path, str]]
    """Files, links, and empty directories, each with the reason."""
    nested: list[Path]
    """Directories with a manifest of their own."""


def strangers(home: Path, known: Collection[str], start: Path | None = None) -> Strangers:
    """Search a directory, or the part of it below `start`, for unknown files; links are not followed."""
    folders = {parent.as_posix() for name in known for parent in Path(name).parents}
    found = Strangers([], [])
    _look(home, start or home, known, folders, found)
    return found


def _look(home: Path, folder: Path, known: Collection[str], folders: Collection[str], found: Strangers) -> None:
    with os.scandir(folder) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path = folder / entry.name
        name = path.relative_to(home).as_posix()
        if entry.is_symlink():
            if name not in known:  # a link in place of a listed file is a fault of that file
                found.named.append((path, f"{NOT_LISTED}: a symbolic link"))
        elif entry.is_dir(follow_symlinks=False):
            if name not in folders and any((path / own).is_file() for own in (LOG_MANIFEST, DATASET_MANIFEST)):
                found.nested.append(path)
            elif name not in folders and not any(path.iterdir()):
                found.named.append((path, f"{NOT_LISTED}: an empty directory"))
            else:
                _look(home, path, known, folders, found)
        elif name not in known and not _is_lock(entry, folder == home):
            found.named.append((path, NOT_LISTED if entry.is_file(follow_symlinks=False) else f"{NOT_LISTED}: no file"))


def _is_lock(entry: "os.DirEntry[str]", at_home: bool) -> bool:
    """Whether it is an empty lock file of ours, which stays after its holder has ended."""
    return at_home and entry.name in LOCKS and entry.is_file(follow_symlinks=False) and not entry.stat().st_size


def changes(home: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Return the changes of a directory with one manifest: files missing, changed, or not listed."""
    files = listed(manifest)
    for name, stated in files.items():
        if why := fault(home / name, stated):
            yield f"{name}: {why}"
    for path, why in strangers(home, {*files, LOG_MANIFEST}).named:
        yield f"{path.relative_to(home)}: {why}"
