"""Whether this installation is compiled, and from which sources: for `braid doctor` and for tests.

The build (hatch_build.py) puts compiled modules next to their sources, where Python prefers them. It records the
digests of the sources, because Python itself does not notice an edited one.
"""

import json
from functools import cache
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_suffix(".json")


class Compiled(NamedTuple):
    """The state of the compiled modules."""

    modules: tuple[str, ...] = ()
    """Their names; none where Python runs everything."""
    changed: tuple[str, ...] = ()
    """Sources that are not those that the modules were compiled from."""
    failed: str = ""
    """The reason why the build compiled nothing."""


@cache
def compiled() -> Compiled:
    """Read the record of the build, and compare its sources."""
    try:
        record = json.loads(RECORD.read_bytes())
    except OSError:
        return Compiled()
    if record["suffix"] != EXTENSION_SUFFIXES[0] or not all((ROOT / file).exists() for file in record["files"]):
        return Compiled()
    if not record["files"]:
        return Compiled(failed=record["failed"])
    changed = tuple(path for path, digest in record["sources"].items() if _digest(ROOT / path) != digest)
    return Compiled((*record["modules"], *record["in_c"]), changed)


def _digest(source: Path) -> str | None:
    return sha256(source.read_bytes()).hexdigest() if source.exists() else None
