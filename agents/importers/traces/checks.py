"""Scores of other systems as `check` lines."""

from typing import Any

from agents.importers.traces.fields import number_in
from agents.verdicts.meaning import RESERVED


def check(
    format_name: str, name: str, value: Any, pass_at: float | None, hint: str | None = None
) -> dict[str, Any] | None:
    """The check of a score: 1 passes, 0 fails, between them it is unknown; `pass_at` decides instead. None for what is no score."""
    score = float(value) if isinstance(value, bool) else number_in({"value": value}, "value")
    if score is None or score != score:  # noqa: PLR0124 - not a number
        return None
    line: dict[str, Any] = {
        "type": "check",
        "name": f"reward-{name}" if name in RESERVED else name,
        "produced_by": f"import:{format_name}",
    }
    if pass_at is None:
        line["status"] = "pass" if score == 1 else "fail" if score == 0 else "unknown"
    else:
        line["status"] = "pass" if score >= pass_at else "fail"
    if 0 <= score <= 1:
        line["score"] = score
    return line | ({"hint": hint} if hint else {})
