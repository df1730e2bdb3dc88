"""A copy of the product without compiled modules: plain Python and fastavro."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]


def plain_copy(folder: Path, *more: str) -> Path:
    """Copy the packages, the tests and what is named beside; Python finds them first in a process that is started there."""
    for name in ("schemas", "agents", "streams", "tests", *more):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "compiled.json")
        )
    return folder
