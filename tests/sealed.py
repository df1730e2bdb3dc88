"""A directory that a test wrote or changed, with a manifest of what is in it now: as a command would have left it."""

from pathlib import Path

from agents.evidence.signing import SigningKey
from streams.log.directory_lock import LOCKS
from streams.log.manifest import LOG_MANIFEST, described, seal


def sealed(directory: Path, key: SigningKey | None = None) -> Path:
    """Write the manifest of a run."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name not in (LOG_MANIFEST, *LOCKS)]
    seal(directory, "run", described(directory, files), key, {})
    return directory
