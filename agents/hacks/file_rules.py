"""All rules on files, in one place: T1 to T10 and T12 to T15.

The same rules read a snapshot beside the pristine task (in a verifier) and the edits that events show (in the fold).
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
"""Of one branch: further ones say nothing new."""


def file_signals(case: Case) -> tuple[HackSignal, ...]:
    """The signals that follow from the files of a branch: one signal for each rule and file, in their order."""
    found: dict[tuple[str, str | None], HackSignal] = {}
    for family in FAMILIES:
        try:
            for each in family(case):
                found.setdefault((each.rule, each.path), each)
        except RecursionError:  # nested deeper than any code that people write
            continue
    return tuple(sorted(found.values(), key=place_of))[:MAX_SIGNALS]


def place_of(signal: HackSignal) -> tuple[int, str, str, int, int]:
    """The order of signals: by family, then by place."""
    family, _, _ = signal.rule.partition(".")
    number = int(family[1:]) if family[1:].isdigit() else 0
    return number, signal.rule, signal.path or "", signal.line or 0, signal.turn or 0


def case_of(
    start: Mapping[str, bytes], left: Mapping[str, bytes], tests: Mapping[str, bytes], instruction: str
) -> Case:
    """The case of a snapshot beside the pristine files of its task."""
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
    """The names under which files are imported: packages and modules of the workspace."""
    names = set()
    for path in paths:
        if path.endswith(PYTHON):
            parts = [part for part in path.rpartition(".")[0].split("/") if part not in ("src", "lib", "__init__")]
            names |= set(parts[:1]) | set(parts[-1:])
    return frozenset(names - {"test", "tests", "conftest"})


def _text(data: bytes | None) -> str | None:
    """A file as text; one that is none is never read."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
