"""The command line's own help: short in the list, whole for a command."""

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from streams.cli import _COMMANDS, _GROUPS, app
from tests.conftest import Braid
from tests.processes import run_braid


def _help(*words: str) -> str:
    done = run_braid(*words, "--help", env={"COLUMNS": "200"})
    assert done.returncode == 0
    return re.sub(r"[\s│]+", " ", done.stdout)


def test_a_command_describes_itself_whole_and_the_list_is_short() -> None:
    replay = _help("replay")
    assert "Exits with 1 when a rollout that has closed cannot be made again" in replay
    assert "Try braid replay --dry-run --verify first" in replay
    assert "the schemas are in the manifest" in _help("archive")
    listed = _help()
    assert "Exits with 1" not in listed
    assert all(text.replace("`", "") in listed for _, text in _COMMANDS.values())


def test_every_command_stands_under_what_people_want_to_do_on_one_line_of_eighty_columns() -> None:
    command = [sys.executable, "-m", "streams", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "80"}).stdout
    assert re.findall(r"^╭─ ([^─]+) ─", shown, re.MULTILINE) == [*_GROUPS, "Options"]
    for name, (_, text) in _COMMANDS.items():
        assert re.search(rf"^│ {name} +{re.escape(text)} *│$", shown, re.MULTILINE), name


def commands(of: App = app) -> Iterator[tuple[str, App]]:
    """Every command and every command below one, with the words that call it."""
    for name in of:
        if name.startswith("-"):
            continue
        found = of[name]
        if found.default_command is not None:
            yield name, found
        yield from ((f"{name} {below}", each) for below, each in commands(found))


def test_the_help_of_every_command_has_an_example_that_the_command_takes() -> None:
    for words, command in commands():
        assert command.default_command is not None
        (example,) = re.findall(r"Example: `braid ([^`]+)`", inspect.getdoc(command.default_command) or "")
        assert f"{example} ".startswith(f"{words} "), words
        parsed, _, _ = app.parse_args(shlex.split(example), exit_on_error=False, print_error=False)
        assert parsed is command.default_command, words


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
