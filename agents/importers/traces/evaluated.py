"""Evaluations and feedback of traces as `check` lines."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agents.importers.traces.fields import number_in, text_in
from agents.importers.traces.format import Options
from schemas.base import MAX_ID

_PASS = frozenset({"pass", "passed", "correct", "true", "yes"})
_FAIL = frozenset({"fail", "failed", "incorrect", "false", "no"})
_RESERVED = frozenset({"build", "visual"})
"""Verdicts that have lines of their own."""


def checks_of(
    found: Iterable[Mapping[str, Any]], produced_by: str, options: Options, *, is_binary: bool = False
) -> list[dict[str, Any]]:
    """Checks of evaluations {name, score, label, explanation}.

    --pass-at decides, else a label that says pass or fail, else (`is_binary`) a score of 1 or 0; else it is unknown.
    """
    return [_check(each, produced_by, options, is_binary=is_binary) for each in found]


def _check(found: Mapping[str, Any], produced_by: str, options: Options, *, is_binary: bool) -> dict[str, Any]:
    name = re.sub(r"\s+", " ", text_in(found, "name") or "evaluation").strip()[:MAX_ID] or "evaluation"
    given = found.get("score")
    score = float(given) if isinstance(given, bool) else number_in(found, "score")
    check: dict[str, Any] = {
        "type": "check",
        "name": f"evaluation-{name}"[:MAX_ID] if name in _RESERVED else name,
        "status": _status(found.get("label"), score, options, is_binary=is_binary),
        "produced_by": produced_by,
    }
    if score is not None and 0 <= score <= 1:
        check["score"] = score
    hint = text_in(found, "explanation")
    return check | ({"hint": hint} if hint else {})


def _status(label: Any, score: float | None, options: Options, *, is_binary: bool) -> str:
    if options.pass_at is not None and score is not None:
        return "pass" if score >= options.pass_at else "fail"
    said = str(label).strip().lower() if label is not None else ""
    if said in _PASS or (is_binary and score == 1):
        return "pass"
    return "fail" if said in _FAIL or (is_binary and score == 0) else "unknown"
