"""Files that a command writes in addition to its output: checked before anything is read or paid for."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from schemas.errors import BraidError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MetricsFile = Annotated[
    Path | None,
    Parameter(help="Write it for Prometheus, too: a .prom file that the node exporter's textfile collector reads."),
]


class ResultFileError(BraidError):
    """A file that cannot be written."""


def check_place(option: str, path: Path) -> None:
    """Raise ResultFileError if no file can be written there."""
    if path.is_dir():
        raise ResultFileError(f"{option} {path} is a directory; give the name of a file")
    if not path.parent.is_dir():
        raise ResultFileError(f"{option} {path}: {path.parent} is no directory; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ResultFileError(f"{option} {path} cannot be written; choose another place")


def write(option: str, path: Path, content: bytes) -> None:
    """Write the file; raises ResultFileError if that fails."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ResultFileError(f"{option} {path} cannot be written: {error.strerror}") from None


def check_metrics_file(path: Path | None) -> None:
    """Raise ResultFileError if Prometheus' textfile collector would not read this file."""
    if path is None:
        return
    if path.suffix != ".prom":
        raise ResultFileError(f"--metrics-file {path}: the collector reads .prom files only; give a name that ends so")
    check_place("--metrics-file", path)


def write_metrics(path: Path, found: "CollectorRegistry") -> None:
    """Write metrics at once: a reader of the directory sees no half file."""
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(str(path), found)
    except OSError as error:
        raise ResultFileError(f"--metrics-file {path} cannot be written: {error.strerror}") from None
