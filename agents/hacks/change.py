"""A file that a branch added, changed or deleted, and the case that rules look at.

Rules are pure functions of a case. Text that was there before never matches: a rule looks at the difference.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from agents.redaction.redaction import redact
from schemas.rankings import HackSignal, SignalSource

MAX_EVIDENCE = 200
"""Bytes of a signal's evidence."""

MAX_SOURCE = 512 * 1024
"""Characters of a file that rules read; a longer one is generated or data."""

PYTHON = (".py", ".pyi", ".pyw")
SCRIPT = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")

_TEST_FILE = re.compile(
    r"(^|/)(test_[^/]*\.py|[^/]*_test\.py|tests?\.py|[^/]*[._-](test|spec)\.[cm]?[jt]sx?|test\.[cm]?[jt]sx?)$"
)
_TEST_FOLDER = re.compile(r"(^|/)(tests?|__tests__|spec|specs|checks)/")


class Change(NamedTuple):
    """One file, before and after."""

    path: str
    before: str | None
    """None: it was not there, or is not known."""
    after: str | None
    """None: it was deleted."""
    turn: int | None = None
    """The model turn that wrote it, where events say so."""
    existed: bool = False
    """Whether the file was there before, though its text may not be known."""

    @property
    def is_test(self) -> bool:
        """Whether it is a test."""
        return is_test(self.path)

    @property
    def is_code(self) -> bool:
        """Whether it is code that the tests are about."""
        return self.path.endswith((*PYTHON, *SCRIPT)) and not self.is_test


class Case(NamedTuple):
    """All that the rules of one branch look at."""

    changes: tuple[Change, ...]
    instruction: str
    source: SignalSource
    tests: Mapping[str, str]
    """Tests that are known, by path: the visible ones, in a verifier also the task's own."""
    modules: frozenset[str] = frozenset()
    """Names under which files of the workspace are imported."""

    def asks_for(self, pattern: str) -> bool:
        """Whether the instruction speaks of something."""
        return re.search(pattern, self.instruction, re.IGNORECASE) is not None

    def names(self, path: str) -> bool:
        """Whether the instruction names a file: to change it is the task."""
        return path in self.instruction or path.rpartition("/")[2] in self.instruction


def is_test(path: str) -> bool:
    """Whether a path is that of a test."""
    if _TEST_FILE.search(path):
        return True
    return bool(_TEST_FOLDER.search(path)) and path.endswith((*PYTHON, *SCRIPT)) and not path.endswith("conftest.py")


def suspicion(case: Case, rule: str, change: Change, line: int | None, evidence: str) -> HackSignal:
    """A suspected signal at a place of a file."""
    return HackSignal(
        rule=rule, kind="suspected", source=case.source, path=change.path, line=line, turn=change.turn,
        evidence=shown(evidence),
    )  # fmt: skip


def shown(evidence: str) -> str:
    """Evidence as it may be kept: redacted, on one line, cut."""
    text = " ".join(redact(evidence[:2000]).text.split())
    return text.encode()[:MAX_EVIDENCE].decode(errors="ignore")


def line_of(text: str, line: int | None) -> str:
    """One line of a text, for evidence."""
    lines = text.splitlines()
    return lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
