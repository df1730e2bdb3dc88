"""The client on Python 3.9 to 3.13: by its sources everywhere, by running it on every interpreter that is at hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.environments import CLIENT, uv

SMOKE = Path(__file__).with_name("smoke.py")


def test_the_sources_use_nothing_newer_than_3_9() -> None:
    """Syntax and the standard library, as vermin reads them."""
    vermin = Path(sys.executable).with_name("vermin")
    checked = subprocess.run(
        [vermin, "--no-tips", "--no-parse-comments", "-t=3.9-", CLIENT / "braidstream"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


def test_the_recording_half_imports_the_standard_library_alone() -> None:
    """In an isolated interpreter that sees no installed packages."""
    code = f"import sys; sys.path.insert(0, {str(CLIENT)!r}); import braidstream; print(braidstream.Braid())"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Braid('http://127.0.0.1:8790')\n"


def interpreter(version: str) -> str | None:
    """A Python of that version: one that uv finds, else one that pyenv has."""
    command = [uv(), "python", "find", "--no-project", "--no-python-downloads", version]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return found.stdout.strip()
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    return next((str(path) for path in sorted(kept.glob(f"{version}.*/bin/python"))), None)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_it_runs_on_the_interpreters_at_hand(version: str) -> None:
    """A branch from its opening to its end arrives whole."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    env = {name: value for name, value in os.environ.items() if name not in ("BRAID_URL", "BRAID_TOKEN", "VIRTUAL_ENV")}
    done = subprocess.run(
        [python, SMOKE],
        env=env | {"PYTHONPATH": str(CLIENT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["rollout", "event", "event", "event", "event", "call", "end"]
