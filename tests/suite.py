"""The parts of a test run, side by side on one broker; a table of them at the end.

    python -m tests.suite check test-cores test-live     # each word is a target of the Makefile
    python -m tests.suite --each long                    # the table has a line for every test

The first part that needs a broker starts it in the directory named by TEST_BROKER (tests/conftest.py); the others find
it there. A guard process stops it when this process ends, however it ends. The exit code is 0 if every part succeeded.
The last line has the totals.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from xml.etree import ElementTree as ET

import psutil

from streams.cluster import broker

# pytest ends its fixtures when it is interrupted: brokers, workers and sandboxes that it started.
PATIENCE_S = 60.0
SLOWEST = 10
STOP = "import shutil, sys; from pathlib import Path; from streams.cluster import broker; path = Path(sys.argv[1]); \
broker.stop(path, wipe=True); shutil.rmtree(path)"


class Test(NamedTuple):
    """One test of a part, from its report."""

    name: str
    result: str
    seconds: float


class Part(NamedTuple):
    """One target of the Makefile and its result."""

    name: str
    code: int
    wall_s: float
    cpu_s: float
    tests: tuple[Test, ...]

    def count(self, result: str) -> int:
        """Count the tests with this result. A part that failed without a failed test counts as one."""
        found = sum(test.result == result for test in self.tests)
        return found or int(result == "failed" and self.code != 0)


@contextmanager
def shared_directory() -> Iterator[Path]:
    """Yield a directory for the broker and the reports; both are gone afterwards, also if this process is killed."""
    state = Path(tempfile.mkdtemp(prefix="braid-suite-"))
    # `cat` ends when this process closes the pipe or dies; a session of its own, so that Ctrl-C does not reach it.
    command = ["sh", "-c", 'cat; exec "$@"', "guard", sys.executable, "-c", STOP, str(state)]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield state
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait()


class Running:
    """A part under way: `make NAME` in a process group of its own, its output printed line by line after its name."""

    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        self.name, self._report, self._began = name, folder / f"{name}.xml", time.monotonic()
        self._process = subprocess.Popen(
            ["make", "--no-print-directory", name, f"REPORT={self._report}"],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._ended: tuple[int, float, float] | None = None
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"{self.name:10} | {line}", end="", flush=True)
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._ended = self._process.returncode, time.monotonic() - self._began, used.ru_utime + used.ru_stime

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended; False if it has not."""
        self._thread.join(seconds)
        return self._ended is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        if self._ended is None:
            os.killpg(self._process.pid, number)

    def result(self) -> Part:
        """Wait for its end and return its result, with the tests of its report if it wrote one."""
        if not self.wait():
            raise RuntimeError(f"the output of {self.name} could not be printed")
        assert self._ended is not None
        return Part(self.name, *self._ended, tuple(read_report(self._report)))


def read_report(path: Path) -> Iterator[Test]:
    """Yield the tests of a JUnit report by pytest; none if there is no report."""
    if not path.exists():
        return
    for case in ET.parse(path).iter("testcase"):
        found = {child.tag for child in case}
        result = "failed" if found & {"failure", "error"} else "skipped" if "skipped" in found else "passed"
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        yield Test(name, result, float(case.get("time", 0)))


def run(names: Sequence[str]) -> list[Part]:
    """Run the parts side by side, and return their results and the broker's. Interrupted, it interrupts them first."""
    with shared_directory() as state:
        env = os.environ | {"TEST_BROKER": str(state)}
        began = time.monotonic()
        parts = [Running(name, state, env) for name in names]
        try:
            results = [part.result() for part in parts]
        except BaseException:
            end(parts)
            raise
        shared = Part("broker", 0, time.monotonic() - began, broker_cpu(state), ())
        return [*results, *([shared] if shared.cpu_s else [])]


def end(parts: Iterable[Running]) -> None:
    """Interrupt parts as Ctrl-C would, and kill those that do not end."""
    for part in parts:
        part.signal(signal.SIGINT)
    ends = time.monotonic() + PATIENCE_S
    for part in parts:
        if not part.wait(max(0.0, ends - time.monotonic())):
            part.signal(signal.SIGKILL)


def broker_cpu(state: Path) -> float:
    """CPU seconds of the shared broker and registry; 0 if nothing started them."""
    pids = [service.pid for service in broker.status(state) if service.pid is not None]
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def by_part(parts: Sequence[Part], wall_s: float) -> Iterator[str]:
    """The table of parts."""
    yield f"{'part':12}{'passed':>8}{'failed':>8}{'skipped':>8}{'wall s':>9}{'CPU s':>9}"
    for part in parts:
        counts = "".join(f"{part.count(result) or '-':>8}" for result in ("passed", "failed", "skipped"))
        yield f"{part.name:12}{counts}{part.wall_s:9.1f}{part.cpu_s:9.1f}"
    sums = "".join(f"{sum(part.count(result) for part in parts):8}" for result in ("passed", "failed", "skipped"))
    yield f"{'all':12}{sums}{wall_s:9.1f}{sum(part.cpu_s for part in parts):9.1f}"


def by_test(tests: Iterable[Test]) -> Iterator[str]:
    """The table of tests."""
    yield f"{'seconds':>8}  result   test"
    yield from (f"{test.seconds:8.1f}  {test.result:8} {test.name}" for test in tests)


def main(words: Sequence[str]) -> int:
    """Run the targets that are named, print the tables, and return the exit code."""
    # SIGINT too: a shell starts background jobs with it ignored, and tests would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    each, names = "--each" in words, [word for word in words if word != "--each"]
    began = time.monotonic()
    try:
        parts = run(names)
    except KeyboardInterrupt:
        print("interrupted; the broker is stopped", flush=True)
        return 130
    tests = [test for part in parts for test in part.tests]
    slowest = sorted(tests, key=lambda test: -test.seconds)[: None if each else SLOWEST]
    failed = [test for test in tests if test.result == "failed"]
    print("", *by_part(parts, time.monotonic() - began), "", *by_test(slowest), "", sep="\n")
    if failed:
        print(*by_test(failed), "", sep="\n")
    print(
        ", ".join(f"{sum(part.count(result) for part in parts)} {result}" for result in ("passed", "failed", "skipped"))
    )
    return int(any(part.code for part in parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
