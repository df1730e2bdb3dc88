"""The audit report as text: names from a log stay text, and what was not looked at is not counted."""

from typing import Any

from agents.audit.report import AuditReport
from agents.evidence.verification import Verifier
from streams.views.report_text import html, markdown, summary


def report(name: str, rollouts: int) -> dict[str, Any]:
    """A report of one verifier."""
    made = AuditReport(Verifier({})).plain()
    made["rollouts"]["n"] = rollouts
    made["verifiers"] = [
        {"id": name, "n": 1, "pass": 1, "fail": 0, "unknown": 0, "pass_rate": 1.0, "wilson": [0.2, 1.0], "findings": [], "strength": None}
    ]  # fmt: skip
    return made


def test_names_are_text_in_both_forms() -> None:
    """Tags, links and the ends of cells."""
    found = report("<img src=x>|[a](javascript:1)", 1)
    page, text = html(found), markdown(found)
    assert "<img" not in page + text
    assert r"&lt;img src=x&gt;\|[a]\(javascript:1)" in text


def test_evidence_alone_tells_nothing_of_verifiers() -> None:
    """No findings is not the same as none that could be seen."""
    assert not any("findings" in line for line in summary(report("build", 0)))
    assert any("0 findings about verifiers" in line for line in summary(report("build", 1)))
