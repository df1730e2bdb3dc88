"""A file that a branch added, changed or deleted, and the case that rules read.

Rules are pure functions of a case. They read the difference, so text that was there before never matches.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from agents.redaction.redaction import redact
from schemas.rankings import HackSignal, SignalSource

MAX_EVIDENCE = 200
"""Maximum bytes of a signal's evidence."""

MAX_SOURCE = 512 * 1024
"""Maximum characters of a file that rules read. A longer file is generated or data."""

PYTHON = (".py", ".pyi", ".pyw")
SCRIPT = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")

_TEST_FILE = re.compile(
    r"(^|/)(test_[^/]*\.py|[^/]*_test\.py|tests?\.py|[^/]*[._-](test|spec)\.[cm]?[jt]sx?|test\.[cm]?[jt]sx?)$"
)
_TEST_FOLDER = re.compile(r"(^|/)(tests?|__tests__|spec|specs|checks)/")


class Change(NamedTuple):
    """A file before and after the branch's changes."""

    path: str
    before: str | None
    """None: the file was absent, or its text is unknown."""
    after: str | None
    """None: the file was deleted."""
    turn: int | None = None
    """The model turn that wrote the file, where the events record it."""
    existed: bool = False
    """Whether the file was there before, even if its text is unknown."""

    @property
    def is_test(self) -> bool:
        """Whether the file is a test."""
        return is_test(self.path)

    @property
    def is_code(self) -> bool:
        """Whether the file is code under test."""
        return self.path.endswith((*PYTHON, *SCRIPT)) and not self.is_test


class Case(NamedTuple):
    """The input of all rules for one branch."""

    changes: tuple[Change, ...]
    instruction: str
    source: SignalSource
    tests: Mapping[str, str]
    """Known tests by path: the visible tests and, in a verifier, also the task's own tests."""
    modules: frozenset[str] = frozenset()
    """Import names of the workspace's files."""

    def asks_for(self, pattern: str) -> bool:
        """Whether the instruction matches a pattern."""
        return re.search(pattern, self.instruction, re.IGNORECASE) is not None

    def names(self, path: str) -> bool:
        """Whether the instruction names a file. Changing such a file is part of the task."""
        return path in self.instruction or path.rpartition("/")[2] in self.instruction


def is_test(path: str) -> bool:
    """Whether a path is a test's path."""
    if _TEST_FILE.search(path):
        return True
    return bool(_TEST_FOLDER.search(path)) and path.endswith((*PYTHON, *SCRIPT)) and not path.endswith("conftest.py")


def suspicion(case: Case, rule: str, change: Change, line: int | None, evidence: str) -> HackSignal:
    """Return a suspected signal at a line of a file."""
    return HackSignal(
        rule=rule, kind="suspected", source=case.source, path=change.path, line=line, turn=change.turn,
        evidence=shown(evidence),
    )  # fmt: skip


def shown(evidence: str) -> str:
    """Return evidence as it is stored: redacted, on one line, truncated."""
    text = " ".join(redact(evidence[:2000]).text.split())
    return text.encode()[:MAX_EVIDENCE].decode(errors="ignore")


def line_of(text: str, line: int | None) -> str:
    """Return one line of a text as evidence."""
    lines = text.splitlines()
    return lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
