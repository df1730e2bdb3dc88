"""The runner of the parts: what it prints and returns, and that the shared broker never outlives it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
PYTEST = f"@{sys.executable} -m pytest -q -p no:cacheprovider -p no:asyncio --junitxml=$(REPORT)"
# A process where the broker would be: all that matters here is that it is stopped.
SLEEPER = """
import os, pathlib
from streams.cluster.broker import process
home = pathlib.Path(os.environ["TEST_BROKER"]) / "kafka"
home.mkdir()
print("pid", process.launch(["sleep", "600"], folder=home, log=home / "log", env=os.environ, pid_file=home / "process.json").pid)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the runner on targets of a Makefile made for the test."""

    def start(*words: str, **targets: str) -> subprocess.Popen[str]:
        (tmp_path / "sleeper.py").write_text(SLEEPER)
        lines = (f"{name}:\n\t{recipe}\n" for name, recipe in targets.items())
        (tmp_path / "Makefile").write_text(".PHONY: " + " ".join(targets) + "\n" + "\n".join(lines))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.suite", *words, *targets],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def test_parts_are_counted_and_the_slowest_tests_named(
    suite: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(
        "import pytest, time\ndef test_good(): time.sleep(0.2)\ndef test_bad(): assert 0\n"
        "@pytest.mark.skip\ndef test_left(): pass\n@pytest.fixture\ndef broken(): raise OSError\ndef test_err(broken): pass\n"
    )
    done = suite(check="@true", one=f"{PYTEST} test_one.py")
    said, _ = done.communicate(timeout=60)
    assert (done.returncode, said.splitlines()[-1]) == (1, "1 passed, 2 failed, 1 skipped")
    assert re.search(r"^one +1 +2 +1 +\d+\.\d +\d+\.\d$", said, re.MULTILINE)
    assert re.search(r"^check +- +- +- ", said, re.MULTILINE)
    assert re.search(r"^ +seconds +result +test\n +0\.2 +passed +test_one.py::test_good$", said, re.MULTILINE)


def test_a_part_that_fails_without_a_test_counts_as_failed(suite: Callable[..., subprocess.Popen[str]]) -> None:
    done = suite(check="@false", fine="@true")
    said, _ = done.communicate(timeout=60)
    assert (done.returncode, said.splitlines()[-1]) == (1, "0 passed, 1 failed, 0 skipped")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_broker_ends_with_the_runner_however_it_ends(
    suite: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    runner = suite(part=f"@{sys.executable} sleeper.py && echo started && while sleep 0.1; do echo .; done")
    assert runner.stdout is not None
    # The part ends by itself once it cannot print any more, as pytest does.
    lines = iter(runner.stdout.readline, "")
    pid = next(int(line.split()[-1]) for line in lines if "| pid " in line)
    assert any("started" in line for line in lines)
    runner.send_signal(number)
    runner.communicate(timeout=60)
    assert runner.returncode == (-number if number == signal.SIGKILL else 130)
    ends = time.monotonic() + 60
    while psutil.pid_exists(pid):
        assert time.monotonic() < ends, "the broker still runs"
        time.sleep(0.05)
