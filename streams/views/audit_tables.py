"""Audits of verifiers, tools, tasks and rows for people."""

from typing import TYPE_CHECKING, Any

from streams.log.terminal_text import visible
from streams.views.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType

NAMED = 5
"""Branches that a line names."""


def verifier_page(found: dict[str, Any]) -> "list[RenderableType]":
    """The audit of verifiers."""
    numbers = ("n", "pass", "fail", "unknown", "rate", "strength")
    made = table("", "verifier", *numbers, right=numbers)
    for each in found["verifiers"]:
        made.add_row(
            visible(each["id"]), *(text(each[key]) for key in ("n", "pass", "fail", "unknown", "pass_rate", "strength"))
        )
    lines: list[RenderableType] = [made] if found["verifiers"] else ["no verdict and no vote in the log"]
    for each in found["verifiers"]:
        lines += [_finding(each["id"], finding, "branches") for finding in each["findings"]]
    if not any(each["findings"] for each in found["verifiers"]):
        lines.append("nothing found")
    return lines


def _finding(name: str, finding: dict[str, Any], where: str) -> str:
    places = finding[where]
    more = f", and {finding['count'] - NAMED:,} more" if finding["count"] > NAMED and places else ""
    shown = f": {', '.join(places[:NAMED])}{more}" if places else ""
    return visible(f"{finding['severity']:8}  {name}  {finding['id']}  {finding['count']:,}{shown}")


def tool_page(found: dict[str, Any]) -> "list[RenderableType]":
    """The audit of tools."""
    made = table("", "tool", "rollouts", "calls", "descriptors", right=("rollouts", "calls", "descriptors"))
    for each in found["tools"]:
        made.add_row(
            visible(each["tool"]), f"{each['rollouts']:,}", f"{each['calls']:,}", f"{len(each['descriptors']):,}"
        )
    lines: list[RenderableType] = [made] if found["tools"] else ["no tool in the log"]
    for each in found["tools"]:
        lines += [_finding(each["tool"], finding, "where") for finding in each["findings"]]
    if not any(each["findings"] for each in found["tools"]):
        lines.append("nothing found")
    return lines


def text(value: float | None) -> str:
    """A number for people; a dash if there is none."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
