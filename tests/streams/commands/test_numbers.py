"""Numbers that an option does not take are refused at the command line, by every command."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from cyclopts import App, Parameter

from streams.cli import _COMMANDS, app
from streams.commands.numbers import Between
from tests.conftest import Braid


def _commands(within: App) -> Iterator[tuple[str, Any]]:
    """Every command by its words, groups opened."""
    for name in within:
        if name.startswith("-"):
            continue
        command = within[name]
        if command.default_command is not None:
            yield name, command.default_command
        yield from ((f"{name} {words}", function) for words, function in _commands(command))


def _parts(hint: Any) -> set[Any]:
    """Everything in a type: what it is made of, and what it is annotated with."""
    found = {hint} if isinstance(hint, type | Parameter) else set()
    for part in get_args(hint):
        found |= _parts(part)
    return found


def _options(taken: Any) -> Iterator[tuple[str, Any]]:
    """Every option of a function with its type, models of options opened."""
    for name, hint in get_type_hints(taken, include_extras=True).items():
        if name != "return":
            yield from _options(hint) if is_dataclass(hint) else [(name, hint)]


def _numbers() -> Iterator[tuple[str, str, Between | None]]:
    """Every option that takes a number: its command, its name, and what it takes."""
    for words, function in _commands(app):
        for name, hint in _options(function):
            parts = _parts(hint)
            if parts & {int, float}:
                ranges = [each for part in parts if isinstance(part, Parameter) for each in part.validator]
                yield (
                    words,
                    f"--{name.replace('_', '-')}",
                    next((each for each in ranges if isinstance(each, Between)), None),
                )


def test_every_number_has_a_range_under_its_own_name() -> None:
    numbers = list(_numbers())
    assert {words.split()[0] for words, _, _ in numbers} >= {"worker", "judge", "gateway", "replay", "fork", "tail"}
    assert {words.split()[0] for words, _ in _commands(app)} == _COMMANDS.keys()
    for words, option, taken in numbers:
        assert taken is not None, f"braid {words} {option}"
        assert taken.option == option


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("worker --slot -1", "--slot -1: give at least 0"),
        ("worker --metrics-port 65536", "--metrics-port 65536: give 0 to 65535"),
        ("judge worker --concurrency 0", "--concurrency 0: give 1 to 1000"),
        ("gateway --port 99999", "--port 99999: give 0 to 65535"),
        ("build-verifier --slot=-2", "--slot -2: give at least 0"),
        ("replay --dry-run --processes -3", "--processes -3: give at least 1"),
        ("rollouts --limit -1", "--limit -1: give at least 0"),
        ("dead-letters retry --limit 0", "--limit 0: give at least 1"),
        ("tail events --limit 0", "--limit 0: give at least 1"),
        ("judge stats --spans 0", "--spans 0: give 1 to 1000"),
        ("memory search words --floor 1.5", "--floor 1.5: give 0 to 1"),
        ("audit adjust 0.5 1.5", "--values 1.5: give 0 to 1"),
        ("fork csv-table --branch-time nan", "--branch-time nan: give at least 0.001"),
        ("fork csv-table --total-time inf", "--total-time inf: give at least 0.001"),
        ("fork csv-table --seed 9007199254740993", "--seed 9007199254740993: give"),
    ],
)
def test_a_number_that_makes_no_sense_is_named_before_anything_is_done(braid: Braid, words: str, said: str) -> None:
    """One line: the option, what was given, and what it takes; exit code 1."""
    code, shown, error = braid(*words.split())
    assert (code, shown) == (1, "")
    assert error.startswith(f"braid: {said}")
    assert error.count("\n") == 1
