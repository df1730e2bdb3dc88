"""Test counts and coverage from reports. A report was written next to untrusted code: it is read as such."""

from math import isfinite
from typing import Literal
from xml.etree import ElementTree as ET
from xml.parsers import expat

from schemas.verdicts import TestCounts

MAX_REPORT = 8 * 1024 * 1024

BROKEN_TEST = ("NameError", "UnboundLocalError", "SyntaxError", "IndentationError")
"""Failures of code that cannot run at all, as opposed to failed assertions."""

MAX_CASES = 100_000
"""Tests that are counted by name."""


def read_counts(report: bytes) -> TestCounts | None:
    """Count the tests of a JUnit report; None when it is not a usable one."""
    root = _parsed(report)
    if root is None:
        return None
    cases = root.findall(".//testcase")
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(
        case.find("skipped") is not None and case.find("failure") is None and case.find("error") is None
        for case in cases
    )
    return TestCounts(
        passed=len(cases) - failed - skipped, failed=failed, skipped=skipped, total=len(cases),
        collection_errors=_collection_errors(root, cases),
    )  # fmt: skip


CaseOutcome = Literal["passed", "failed", "error", "skipped"]


def read_cases(report: bytes) -> dict[str, CaseOutcome] | None:
    """The outcome of each test, by class and name; None for a report that is not usable. Of two tests with one name the
    worse outcome counts.
    """
    root = _parsed(report)
    if root is None:
        return None
    found: dict[str, CaseOutcome] = {}
    for case in root.findall(".//testcase")[:MAX_CASES]:
        name = f"{case.get('classname') or ''}::{case.get('name') or ''}"
        outcome: CaseOutcome = "passed"
        failure = case.find("failure")
        if failure is not None:
            outcome = "error" if (failure.get("message") or "").startswith(BROKEN_TEST) else "failed"
        elif case.find("error") is not None:
            outcome = "error"
        elif case.find("skipped") is not None:
            outcome = "skipped"
        if found.get(name, "passed") in ("passed", "skipped"):
            found[name] = outcome
    return found


def _collection_errors(root: ET.Element, cases: list[ET.Element]) -> int | None:
    """Test files that pytest could not collect; None for a report of another runner, which records it differently."""
    if not any(suite.get("name") == "pytest" for suite in root.iter("testsuite")):
        return None
    errors = (case.find("error") for case in cases)
    return sum(error is not None and (error.get("message") or "").startswith("collection failure") for error in errors)


def read_coverage(report: bytes) -> float | None:
    """Line coverage: from a Cobertura report (`line-rate`), or a JUnit report's property `coverage`; None if neither
    has it.
    """
    root = _parsed(report)
    if root is None:
        return None
    said = root.get("line-rate") if root.tag == "coverage" else None
    if said is None:
        found = [each.get("value") for each in root.iter("property") if each.get("name") == "coverage"]
        said = found[0] if len(found) == 1 else None
    try:
        share = float(said) if said is not None else None
    except ValueError:
        return None
    return share if share is not None and isfinite(share) and 0.0 <= share <= 1.0 else None


def _parsed(report: bytes) -> ET.Element | None:
    """The report; None if it is too large, has a document type or entities, or is not XML."""
    if len(report) > MAX_REPORT:
        return None
    try:
        _refuse_doctype(report)
        return ET.fromstring(report)  # noqa: S314 - entities are refused above
    except (ET.ParseError, expat.ExpatError, ValueError, LookupError):
        return None


def _refuse_doctype(report: bytes) -> None:
    """Raise ValueError for a document type, and so for entities, in whatever encoding the report declares."""

    def refuse(*_declaration: object) -> None:
        raise ValueError("a report has no document type")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(report, True)
