"""Verdicts of a trace, as `check` lines without their identity.

A score is a pass or a fail only if its format defines that.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agents.importers.traces.fields import number_in, text_in
from agents.importers.traces.format import Options
from agents.verdicts.meaning import RESERVED
from schemas.base import MAX_ID

ALMOST_ONE = 1 - 1e-6
"""A reward of 0 to 1 passes from this score on, because rounded sums of shares may miss 1."""

_PASS = frozenset({"pass", "passed", "correct", "true", "yes"})
_FAIL = frozenset({"fail", "failed", "incorrect", "false", "no"})
"""Labels of evaluations that define the meaning of their score."""


def check(
    format_name: str, name: str, status: str, score: float | None = None, hint: str | None = None
) -> dict[str, Any]:
    """Return a check: pass, fail or unknown. A score outside 0 to 1 is only in its hint."""
    return _line(f"import:{format_name}", name, status, score, hint)


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
    """Return the check of a score: a pass from `passes` on, a fail up to `fails` (unset: all others), else unknown.

    `--pass-at` overrides this. There is no check if the value is not a number.
    """
    score = _score(value)
    if score is None:
        return []
    if options.pass_at is not None:
        status = "pass" if score >= options.pass_at else "fail"
    elif score >= passes:
        status = "pass"
    else:
        status = "fail" if fails is None or score <= fails else "unknown"
    return [check(format_name, name, status, score, hint)]


def rewarded(format_name: str, name: str, value: Any, options: Options) -> list[dict[str, Any]]:
    """Return the check of a reward of any scale: 1 passes, 0 fails, all others are unknown.

    `--pass-at` overrides this.
    """
    score = _score(value)
    if options.pass_at is not None or score is None:
        return scored(format_name, name, value, options)
    return [check(format_name, name, "pass" if score == 1 else "fail" if score == 0 else "unknown", score)]


def checks_of(
    found: Iterable[Mapping[str, Any]], produced_by: str, options: Options, *, is_binary: bool = False
) -> list[dict[str, Any]]:
    """Return the checks of evaluations {name, score, label, explanation}.

    The status is decided by --pass-at, else by a pass or fail label, else (`is_binary`) by a score of 1 or 0. Otherwise
    it is unknown.
    """
    return [_evaluation(each, produced_by, options, is_binary=is_binary) for each in found]


def _evaluation(found: Mapping[str, Any], produced_by: str, options: Options, *, is_binary: bool) -> dict[str, Any]:
    name, score = re.sub(r"\s+", " ", text_in(found, "name") or "").strip(), _score(found.get("score"))
    status = _status(found.get("label"), score, options, is_binary=is_binary)
    return _line(produced_by, name or "evaluation", status, score, text_in(found, "explanation"))


def _status(label: Any, score: float | None, options: Options, *, is_binary: bool) -> str:
    if options.pass_at is not None and score is not None:
        return "pass" if score >= options.pass_at else "fail"
    said = str(label).strip().lower() if label is not None else ""
    if said in _PASS or (is_binary and score == 1):
        return "pass"
    return "fail" if said in _FAIL or (is_binary and score == 0) else "unknown"


def _score(value: Any) -> float | None:
    """Return the number of a score; true is 1."""
    return float(value) if isinstance(value, bool) else number_in({"": value}, "")


def _line(produced_by: str, name: str, status: str, score: float | None, hint: str | None) -> dict[str, Any]:
    shown = f"{name} check" if name in RESERVED else name or "check"
    made: dict[str, Any] = {"type": "check", "name": shown[:MAX_ID], "status": status}
    if score is not None and 0 <= score <= 1:
        made["score"] = score
    elif score is not None:
        hint = f"score {score}" if hint is None else f"score {score}; {hint}"
    if hint:
        made["hint"] = hint
    return made | {"produced_by": produced_by}
