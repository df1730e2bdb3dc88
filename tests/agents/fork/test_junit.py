"""Reports are read as what they are: written next to untrusted code."""

import pytest

from agents.fork.junit import read_counts, read_coverage
from schemas.verdicts import TestCounts


def test_counts_are_those_of_the_cases_not_of_the_attributes() -> None:
    """A suite that says tests=9 and holds three cases holds three."""
    report = b"""<testsuites><testsuite tests="9" failures="0"><testcase/><testcase><failure/></testcase>
        <testcase><skipped/></testcase></testsuite></testsuites>"""
    assert read_counts(report) == TestCounts(passed=1, failed=1, skipped=1, total=3)


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"<",
        b"no xml",
        b'<!DOCTYPE x [<!ENTITY a "b">]><testsuite>&a;</testsuite>',
        b"<a>" + b"x" * 9_000_000,
        '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE x [<!ENTITY a "b">]><testsuite>&a;</testsuite>'.encode(
            "utf-16"
        ),
    ],
)
def test_what_is_no_report_counts_nothing(report: bytes) -> None:
    """No entities, no document types, no huge files."""
    assert read_counts(report) is None
    assert read_coverage(report) is None


@pytest.mark.parametrize(
    ("report", "share"),
    [
        (b'<coverage line-rate="0.875" branch-rate="0"/>', 0.875),
        (b'<testsuite><properties><property name="coverage" value="0.5"/></properties></testsuite>', 0.5),
        (b'<coverage line-rate="1.5"/>', None),
        (b'<coverage line-rate="nan"/>', None),
        (b'<coverage line-rate="much"/>', None),
        (b"<testsuite/>", None),
    ],
)
def test_coverage_is_a_share_or_nothing(report: bytes, share: float | None) -> None:
    """Nothing unknown becomes 0."""
    assert read_coverage(report) == share
