"""Compare commands by processor time: run them in turns, and report medians.

Turns cancel what changes slowly on a shared machine. Processor time of a command includes that of all processes it waited for.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

RUNS = 7


class Usage(NamedTuple):
    """Resources that one command used, with its child processes."""

    cpu: float
    """Seconds of processor time, user and system."""
    wall: float
    rss: int
    """Resident set in bytes, of the largest process."""


def measure(command: Sequence[str | Path], cwd: Path | None = None) -> Usage:
    """Run a command to its end. Raises RuntimeError, with the command's errors, when it fails."""
    began = os.times().elapsed
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {process.returncode}\n{errors.decode()}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(used.ru_utime + used.ru_stime, os.times().elapsed - began, used.ru_maxrss * unit)


def alternate(sides: Mapping[str, Callable[[], Usage]], runs: int = RUNS) -> dict[str, Usage]:
    """Run every side `runs` times, in turns; returns the median of each figure by side."""
    found: dict[str, list[Usage]] = {name: [] for name in sides}
    for turn in range(runs):
        for name in sides if turn % 2 else reversed(sides):
            found[name].append(sides[name]())
    return {name: _median(each) for name, each in found.items()}


def _median(found: Iterable[Usage]) -> Usage:
    cpu, wall, rss = map(median, zip(*found, strict=True))
    return Usage(cpu, wall, int(rss))
