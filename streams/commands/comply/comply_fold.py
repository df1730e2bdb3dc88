"""Lines of compliance runs to rows: the embedded log."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.jobs.counts import Counts


def fold(path: Path, out: Path, settings: "Settings") -> "Counts":
    """Fold a file of lines into rankings, evidence and rows under `out`."""
    from streams.cluster.signing_keys import signing_key
    from streams.jobs.run.run import run_files

    return run_files([path], out, settings, signing_key(settings))
