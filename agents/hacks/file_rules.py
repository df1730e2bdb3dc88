"""All rules on files in one list: T1 to T10 and T12 to T15.

The same rules apply to a snapshot with its pristine task (in a verifier) and to the edits that events show (in the
fold).
"""

from collections.abc import Callable, Iterator, Mapping

from agents.hacks.answers import answers
from agents.hacks.change import PYTHON, SCRIPT, Case, Change, is_test
from agents.hacks.changed_tests import changed_tests
from agents.hacks.endings import endings
from agents.hacks.harness import harness
from agents.hacks.patches import patches
from agents.hacks.silenced import silenced
from schemas.rankings import HackSignal

FAMILIES: tuple[Callable[[Case], Iterator[HackSignal]], ...] = (
    changed_tests, harness, endings, patches, answers, silenced,
)  # fmt: skip

MAX_SIGNALS = 40
"""Maximum signals of one branch. Further signals add nothing."""


def file_signals(case: Case) -> tuple[HackSignal, ...]:
    """Return the signals of a branch's files: one for each rule and file, in order."""
    found: dict[tuple[str, str | None], HackSignal] = {}
    for family in FAMILIES:
        try:
            for each in family(case):
                found.setdefault((each.rule, each.path), each)
        except RecursionError:  # nested deeper than code that people write
            continue
    return tuple(sorted(found.values(), key=place_of))[:MAX_SIGNALS]


def place_of(signal: HackSignal) -> tuple[int, str, str, int, int]:
    """Return the sort key of a signal: family, rule, path, line, turn."""
    family, _, _ = signal.rule.partition(".")
    number = int(family[1:]) if family[1:].isdigit() else 0
    return number, signal.rule, signal.path or "", signal.line or 0, signal.turn or 0


def case_of(
    start: Mapping[str, bytes], left: Mapping[str, bytes], tests: Mapping[str, bytes], instruction: str
) -> Case:
    """Return the case of a snapshot and its task's pristine files."""
    changes = []
    for path in sorted(start.keys() | left.keys()):
        before, after = start.get(path), left.get(path)
        if before != after:
            changes.append(Change(path, _text(before), _text(after), existed=before is not None))
    known = {path: text for path, data in start.items() if is_test(path) and (text := _text(data)) is not None}
    known |= {
        f"tests/{path}": text
        for path, data in tests.items()
        if path.endswith((*PYTHON, *SCRIPT)) and (text := _text(data)) is not None
    }
    return Case(tuple(changes), instruction, "files", known, modules_of([*start, *left]))


def modules_of(paths: list[str]) -> frozenset[str]:
    """Return the import names of files: the workspace's packages and modules."""
    names = set()
    for path in paths:
        if path.endswith(PYTHON):
            parts = [part for part in path.rpartition(".")[0].split("/") if part not in ("src", "lib", "__init__")]
            names |= set(parts[:1]) | set(parts[-1:])
    return frozenset(names - {"test", "tests", "conftest"})


def _text(data: bytes | None) -> str | None:
    """Return a file as text; None if it is not text."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
