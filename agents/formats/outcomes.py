"""Verdicts and usage of a branch, as its evidence has them, in the words of the lines that `braid import` reads back."""

from typing import Any

from agents.formats.shape import Group

_CHECK = "check:"


def verdict_lines(group: Group, branch_index: int) -> list[dict[str, Any]]:
    """The known verdicts of a branch, each as the members of its line; votes of judges are none."""
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
