"""Verdicts that a trace holds, as `check` lines without their identity: a score is a pass or a fail only where its format says so."""

from typing import Any

from agents.importers.traces.fields import number_in
from agents.importers.traces.format import Options
from schemas.base import MAX_ID

ALMOST_ONE = 1 - 1e-6
"""The score from which a reward of 0 to 1 is a pass: sums of shares miss 1 by a rounding."""

_RESERVED = ("build", "visual")
"""Verdicts that have lines of their own."""


def check(
    format_name: str, name: str, status: str, score: float | None = None, hint: str | None = None
) -> dict[str, Any]:
    """A check: pass, fail or unknown; a score outside of 0 to 1 is in its hint only."""
    shown = f"{name} check" if name in _RESERVED else name or "check"
    made: dict[str, Any] = {"type": "check", "name": shown[:MAX_ID], "status": status}
    if score is not None and 0 <= score <= 1:
        made["score"] = score
    elif score is not None:
        hint = f"score {score}" if hint is None else f"score {score}; {hint}"
    if hint:
        made["hint"] = hint
    return made | {"produced_by": f"import:{format_name}"}


def scored(
    format_name: str,
    name: str,
    value: Any,
    options: Options,
    *,
    passes: float = ALMOST_ONE,
    fails: float | None = None,
    hint: str | None = None,
) -> list[dict[str, Any]]:
    """The check of a score: a pass from `passes` on, a fail up to `fails` (unset: all others), else unknown; `--pass-at` decides
    instead. No check where the value is no number.
    """
    score = number_in({"score": value}, "score")
    if score is None:
        return []
    if options.pass_at is not None:
        status = "pass" if score >= options.pass_at else "fail"
    elif score >= passes:
        status = "pass"
    else:
        status = "fail" if fails is None or score <= fails else "unknown"
    return [check(format_name, name, status, score, hint)]
