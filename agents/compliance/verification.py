"""The verdict of a text: the constraints of a spec that it follows. Pure: the same spec and text give the same
verdict.

A text fails if a hard constraint fails. Otherwise it is unknown if a hard constraint is unknown; otherwise it
passes. Soft constraints never decide.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from agents.compliance.checked_text import CheckedText, checked_text
from agents.compliance.ifeval_rules import RULES, Finding, Where
from agents.compliance.short_rules import SHORT_RULES, Calls
from schemas.compliance import (
    ComplianceStatus,
    ConstraintIR,
    ConstraintViolation,
    EvidenceSpan,
    TaskSpec,
)

MOST_HINT: Final = 500
"""Maximum characters of a hint in a violation. All rounds of a branch share one verdict."""

_BLANK = Finding(False, "the text is blank")


class ConstraintVerdict(NamedTuple):
    """The verdict of one constraint."""

    constraint: ConstraintIR
    status: ComplianceStatus
    hint: str | None
    """None exactly when the constraint passes."""
    where: Where
    """The range in code points; None: the whole response, or the constraint passes."""
    official: bool | None
    """The result of Google's strict check, for classes of IFEval."""

    @property
    def span(self) -> EvidenceSpan | None:
        """The range of a violation."""
        if self.status == "pass":
            return None
        return EvidenceSpan(region_id="response") if self.where is None else EvidenceSpan(char_range=self.where)


class TextVerdict(NamedTuple):
    """The verdict of one text."""

    status: ComplianceStatus
    constraints: tuple[ConstraintVerdict, ...]

    @property
    def official(self) -> bool | None:
        """Whether all of Google's strict checks hold; None if there are none."""
        known = [each.official for each in self.constraints if each.official is not None]
        return all(known) if known else None

    @property
    def hard_passed(self) -> int:
        """The number of hard constraints that pass."""
        return sum(1 for each in self.constraints if each.constraint.level == "hard" and each.status == "pass")

    @property
    def hard_total(self) -> int:
        """The number of hard constraints."""
        return sum(1 for each in self.constraints if each.constraint.level == "hard")

    def violations(self) -> list[dict[str, Any]]:
        """Return the constraints that do not pass, in the protocol's format."""
        return [violation_of(each) for each in self.constraints if each.status != "pass"]


def violation_of(verdict: ConstraintVerdict) -> dict[str, Any]:
    """Return a ConstraintViolation as JSON."""
    constraint = verdict.constraint
    return ConstraintViolation(
        constraint_id=constraint.id,
        level=constraint.level,
        category=constraint.category,
        hint=(verdict.hint or "")[:MOST_HINT],
        evidence_span=verdict.span,
        detected_at="post_tool_call" if constraint.category == "tool" else "post_decode",
    ).view()


class Verifier:
    """The rules of one spec, resolved once."""

    def __init__(self, spec: TaskSpec) -> None:
        """Raise KeyError for an unknown method. A task file is checked when it is loaded."""
        self._checks = [_check(each) for each in spec.constraints]

    def verify(self, text: str, calls: Calls = ()) -> TextVerdict:
        """Return the verdict of a text and of the tools that its branch called."""
        return self.judge(checked_text(text), calls)

    def judge(self, text: CheckedText, calls: Calls = ()) -> TextVerdict:
        """Return the same as `verify`, for a text whose views may be cached."""
        blank = text.blank
        made: list[ConstraintVerdict] = []
        status: ComplianceStatus = "pass"
        for constraint, ifeval, rule, arg in self._checks:
            if blank:
                holds, hint, where, official = _BLANK
            else:
                holds, hint, where, official = rule(text, arg) if ifeval else rule(text, arg, calls)
            if holds:
                made.append(ConstraintVerdict(constraint, "pass", None, None, True if ifeval else None))
                continue
            found: ComplianceStatus = "unknown" if holds is None else "fail"
            if constraint.level == "hard" and status != "fail":
                status = found
            says = (bool(official) if official is not None else False) if ifeval else None
            made.append(ConstraintVerdict(constraint, found, hint, where, says))
        return TextVerdict(status, tuple(made))


def _check(constraint: ConstraintIR) -> tuple[ConstraintIR, bool, Any, Any]:
    """Return a constraint, whether it belongs to IFEval, its rule, and the rule's parameters."""
    method = constraint.verify_method
    if method.startswith("ifeval:"):
        return constraint, True, RULES[method.removeprefix("ifeval:")], constraint.arg or {}
    return constraint, False, SHORT_RULES[method], constraint.arg


def verify(spec: TaskSpec, text: str, calls: Calls = ()) -> TextVerdict:
    """Return the verdict of one text. For many texts of one spec, keep a Verifier."""
    return Verifier(spec).verify(text, calls)


def loosened(text: str) -> list[str]:
    """Return the eight texts of the loose check: without first and last lines, each also without asterisks."""
    lines = text.split("\n")
    kept = [text] + ["\n".join(each).strip() for each in (lines[1:], lines[:-1], lines[1:-1])]
    return [*kept, *(each.replace("*", "") for each in kept)]


def verify_loose(verifier: Verifier, text: str) -> Sequence[bool | None]:
    """Return, for each constraint, whether it holds for any of the eight texts; None for constraints outside IFEval."""
    verdicts = [verifier.verify(each) for each in dict.fromkeys(loosened(text))]
    columns = zip(*(verdict.constraints for verdict in verdicts), strict=True)
    return [None if column[0].official is None else any(each.official for each in column) for column in columns]
