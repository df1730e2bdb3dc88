"""The files of a log: their paths in a directory, and their entries in its manifest.

A log is read when its manifest is there and its files are as it lists them. A log that was interrupted has none: it is
refused, unless the caller asks for the existing part.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.compliance import ComplianceEvalRecord
from streams.log.container import EmbeddedLogError
from streams.log.directory_lock import RUN_LOCK
from streams.log.durable_files import PARTIAL, digest_of
from streams.log.file_writer import SUFFIX
from streams.log.json_lines import SINK_FILES
from streams.log.manifest import LOG_MANIFEST, NOT_LISTED, ManifestError, listed, read_manifest, shortfall
from streams.log.reader import LookError
from streams.log.topics import TOPICS

LOG = "log"
"""The folder of the log in a directory that has one."""
SPOOL = "braid-run-"
"""The prefix of a run's temporary folders; a killed run leaves them."""


class LogFiles:
    """The files of a log, and their entries in the manifest.

    Raises LookError for a log that was not finished, or has lost files since; not so with `unfinished`.
    """

    def __init__(self, directory: Path, *, unfinished: bool = False) -> None:
        self.home = home_of(directory)
        self.folder = log_folder(directory if self.home == directory else self.home)
        self.manifest = read_manifest(self.home)
        self._stated = {self.home / name: stated for name, stated in listed(self.manifest).items()}
        self._unchanged: dict[Path, bool] = {}
        """Files that were checked against the manifest, and whether they are unchanged."""
        if not unfinished:
            _require_finished(directory, self.home, self.manifest)

    @property
    def schemas(self) -> dict[int, dict[str, Any]]:
        """The schemas that an archive brings along, by the ids in its records."""
        return _schemas(self.manifest)

    def is_unchanged(self, path: Path) -> bool:
        """Whether a file was found to have the digest that the manifest states."""
        return self._unchanged.get(path, False)

    def require_unchanged(self, path: Path) -> None:
        """Raise EmbeddedLogError for a file that has not the digest of the manifest: before any of it is used."""
        stated = self._stated.get(path)
        if stated is None:
            return
        if path not in self._unchanged:
            self._unchanged[path] = digest_of(path) == stated.get("sha256")
        if not self._unchanged[path]:
            raise EmbeddedLogError(f"{path}: damaged: its digest is not the one in {LOG_MANIFEST} (take a whole copy)")


def _require_finished(directory: Path, home: Path, manifest: Mapping[str, Any]) -> None:
    again = f"take a whole copy, or make it again (for an archive: remove it, then `braid archive --out {home}`)"
    salvage = "--unfinished reads what is there"
    if not (home / LOG_MANIFEST).is_file():
        if _is_older_run(home):
            return
        raise LookError(
            f"{directory} was not finished: {LOG_MANIFEST}, which is written last, is not in {home}; {again}; {salvage}"
        )
    short = [f"{name}: {why}" for name, stated in listed(manifest).items() if (why := shortfall(home / name, stated))]
    short += [f"{path.relative_to(home)}: {NOT_LISTED}" for path in _strange(home, listed(manifest))]
    if short:
        more = f" (and {len(short) - 1:,} more)" if len(short) > 1 else ""
        raise LookError(f"{directory} is not whole by its {LOG_MANIFEST}: {short[0]}{more}; {again}; {salvage}")


def _strange(home: Path, known: Mapping[str, Any]) -> list[Path]:
    """Files of the log that its manifest does not list; empty if it lists no log at all, as older ones do."""
    found = {path.relative_to(home).as_posix(): path for path in sorted((home / LOG).glob(f"*/*{SUFFIX}"))}
    return [path for name, path in found.items() if name not in known] if found.keys() & known.keys() else []


def _is_older_run(home: Path) -> bool:
    """Whether this is a finished run from before runs had manifests: all its files are there, and no leftovers of a
    killed one.

    Runs with manifests leave a lock.
    """
    names = [name for record, name in SINK_FILES.items() if record is not ComplianceEvalRecord]  # it came later
    has_all = all((home / name).is_file() for name in names) and not (home / RUN_LOCK).exists()
    return has_all and not any(
        path.suffix == PARTIAL or path.name.startswith(SPOOL) for path in (*home.iterdir(), *(home / LOG).glob("*/*"))
    )


def schemas_of(home: Path) -> dict[int, dict[str, Any]]:
    """The schemas in the manifest of a directory; empty if it cannot be read."""
    try:
        return _schemas(read_manifest(home))
    except ManifestError:
        return {}


def _schemas(manifest: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    found = manifest.get("schemas")
    pairs = found.items() if isinstance(found, dict) else ()
    return {
        int(schema_id): schema for schema_id, schema in pairs if str(schema_id).isdecimal() and isinstance(schema, dict)
    }


def home_of(directory: Path) -> Path:
    """The directory with the manifest of a log: the given one, or its parent if the log folder was given."""
    inside = find_log(directory) == directory and directory.resolve().name == LOG
    return directory if not inside or (directory / LOG_MANIFEST).is_file() else directory.resolve().parent


def log_folder(directory: Path) -> Path:
    """The log in a directory that `braid run --out` made, or that directory itself. Raises LookError if there is none."""
    found = find_log(directory)
    if found is None:
        raise LookError(f"{directory} holds no embedded log; give the directory that `braid run --out` filled")
    return found


def find_log(directory: Path) -> Path | None:
    """The same; None if there is none."""
    for folder in (directory / LOG, directory):
        if any((folder / topic.name).is_dir() for topic in TOPICS):
            return folder
    return None
