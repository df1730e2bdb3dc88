"""The command line's own help: short in the list, whole for a command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from streams.cli import _COMMANDS
from tests.conftest import Braid


def _help(*words: str) -> str:
    command = [sys.executable, "-m", "streams.cli", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "200"})
    return re.sub(r"[\s│]+", " ", done.stdout)


def test_a_command_describes_itself_whole_and_the_list_is_short() -> None:
    replay = _help("replay")
    assert "Exits with 1 when a rollout that has closed cannot be made again" in replay
    assert "Try braid replay --dry-run --verify first" in replay
    assert "the schemas are in the manifest" in _help("archive")
    listed = _help()
    assert "Exits with 1" not in listed
    assert all(text.replace("`", "") in listed for _, text in _COMMANDS.values())


@pytest.mark.parametrize("name", ["replay", "fork", "build-verifier", "verify", "export"])
def test_no_option_asks_for_an_empty_list(name: str) -> None:
    assert "--empty-" not in _help(name)


@pytest.mark.parametrize(
    "words", ["judge worker", "judge again", "judge calibrate", "judge probe", "run", "build-verifier"]
)
def test_who_asks_a_judge_says_whose_calls_the_hourly_budget_counts(words: str) -> None:
    assert "judge.calls_per_hour" in _help(*words.split())


def test_the_list_loads_no_command() -> None:
    """`braid --help` is quick: nothing of the commands is imported for it."""
    code = "import sys; from streams.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith("streams.commands.") or name in ("aiokafka", "numpy")]


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, braid: Braid) -> None:
    """A directory that is a file: its name and the reason, no traceback."""
    (tmp_path / "lines.ndjson").write_text('{"type":"rollout","rollout_id":"r","task":"t"}\n')
    (tmp_path / "file").touch()
    code, _, said = braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "file")
    assert (code, said) == (1, f"braid: --out {tmp_path / 'file'} is a file; give a directory\n")
