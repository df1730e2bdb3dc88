"""Verdicts of a branch, in the words of the lines that `braid import` reads back."""

from collections.abc import Sequence
from typing import Any

from agents.formats.shape import Group
from agents.verdicts.meaning import Verdict
from schemas.verdicts import BuildVerdict, CheckVerdict

_CHECK = "check:"


def verdict_lines(group: Group, branch_index: int, verdicts: Sequence[Verdict] = ()) -> list[dict[str, Any]]:
    """The verdicts of a branch, each as the members of its line; without votes of judges.

    `verdicts` are the facts, if available: they also have scores and counts of undecided verdicts. Otherwise the
    evidence lists the decided ones.
    """
    if verdicts:
        return [_line(each) for each in verdicts]
    evidence = group.evidence.get(branch_index)
    made: list[dict[str, Any]] = []
    for result in evidence.verifier_results if evidence is not None else ():
        name = result.verifier_id
        if name == "build":
            made.append(
                {
                    "type": "build",
                    "status": "success" if result.passed else "failure",
                    "exit_code": int(not result.passed),
                }
            )
        elif name == "visual":
            made.append({"type": "visual", "verdict": "pass" if result.passed else "fail"})
        elif name.startswith(_CHECK):
            check: dict[str, Any] = {"type": "check", "name": name.removeprefix(_CHECK)}
            check["status"] = "pass" if result.passed else "fail"
            made.append(check if result.score is None else check | {"score": result.score})
    return made


def _line(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, BuildVerdict):
        names, kind = {"status", "exit_code", "stage", "tests"}, "build"
    elif isinstance(verdict, CheckVerdict):
        names, kind = {"name", "status", "score", "hint"}, "check"
    else:
        names, kind = (
            {"verdict", "reason", "uncaught_errors", "console_errors", "dom_probes", "renders_non_empty"},
            "visual",
        )
    return {"type": kind, **verdict.model_dump(mode="json", include=names, exclude_none=True)}
