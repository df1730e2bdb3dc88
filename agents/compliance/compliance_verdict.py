"""The check `compliance`: verdicts of a branch's rounds and answer, from its spec and texts alone.

A runner's or agent's own claims about its rounds decide nothing. A claim that differs is flagged, and quarantines
the branch.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from agents.compliance.task_file import TaskError, check_methods
from agents.compliance.verification import TextVerdict, Verifier
from agents.importers.records import content_id
from schemas.codec.body import first_problem
from schemas.compliance import COMPLIANCE, COMPLIANCE_ATTEMPT, ENGINE, TaskSpec
from schemas.events import AgentEvent
from schemas.jsontext import compact, parse_object
from schemas.verdicts import CheckVerdict

INCONSISTENT: Final = "inconsistent_compliance"

MOST_ROUNDS: Final = 16
"""Maximum rounds of a branch that are verified. An agent may claim any number."""


class Place(NamedTuple):
    """The attempt that a verdict is for."""

    rollout_id: str
    branch_index: int
    attempt: int


@lru_cache(maxsize=256)
def read_spec(text: str) -> TaskSpec:
    """Return the spec of an opening. Raises TaskError."""
    try:
        spec = TaskSpec.model_validate_json(text)
    except ValidationError as error:
        raise TaskError(f"spec: {first_problem(error)}") from None
    check_methods(spec, "spec.")
    return spec


def compliance_verdict(place: Place, spec_text: str, events: Sequence[AgentEvent]) -> CheckVerdict:
    """Return the verdict of a finished branch; unknown, with the reason, if it cannot be decided."""
    try:
        spec = read_spec(spec_text)
    except TaskError as error:
        return _verdict(place, "", "unknown", None, str(error), None)
    verifier, calls = Verifier(spec), list[str]()
    rounds: list[dict[str, Any]] = []
    flags: set[str] = set()
    answer: str | None = None
    for event in events:
        data = _data(event)
        calls += _calls(event.event, data)
        if event.event == COMPLIANCE_ATTEMPT and isinstance(data.get("output"), str) and len(rounds) < MOST_ROUNDS:
            found = verifier.verify(data["output"], calls)
            rounds.append(_round(data, found))
            if _differs(data, found):
                flags.add(INCONSISTENT)
        elif event.event == "final_answer":
            said = data.get("answer")
            answer = said if isinstance(said, str) else answer
            if (
                "passed" in data
                and answer is not None
                and data["passed"] is not (verifier.verify(answer, calls).status == "pass")
            ):
                flags.add(INCONSISTENT)
    digest = spec.digest()
    if answer is None:
        return _verdict(place, digest, "unknown", None, "the branch has no answer that is text", None)
    whole = verifier.verify(answer, calls)
    details = {
        "spec_hash": digest,
        "engine": ENGINE,
        "rounds": rounds,
        "violations": whole.violations(),
        "constraints_passed": whole.hard_passed,
        "constraints_total": whole.hard_total,
        **({"flags": sorted(flags)} if flags else {}),
    }
    hint = "; ".join(
        f"{each.constraint.id}: {each.hint}"
        for each in whole.constraints
        if each.hint and each.constraint.level == "hard"
    )
    return _verdict(place, digest, whole.status, whole, hint[:2000] or None, compact(details))


def _verdict(
    place: Place, digest: str, status: Any, whole: TextVerdict | None, hint: str | None, details: str | None
) -> CheckVerdict:
    score = None
    if whole is not None and status != "unknown" and whole.hard_total:
        score = round(whole.hard_passed / whole.hard_total, 9)
    return CheckVerdict(
        verdict_id=content_id("compliance", [*place, digest, ENGINE]),
        rollout_id=place.rollout_id,
        branch_index=place.branch_index,
        attempt=place.attempt,
        name=COMPLIANCE,
        status=status,
        score=score,
        hint=None if status == "pass" else hint,
        details=details,
        produced_by="braid-compliance-verifier",
    )


def _round(data: Mapping[str, Any], found: TextVerdict) -> dict[str, Any]:
    return {
        "round": data.get("round"),
        "output_digest": sha256(data["output"].encode("utf-8", "surrogatepass")).hexdigest(),
        "status": found.status,
        "violations": found.violations(),
    }


def _differs(data: Mapping[str, Any], found: TextVerdict) -> bool:
    """Whether a round's claim differs from the verdict of its text."""
    if "passed" in data and data["passed"] is not (found.status == "pass"):
        return True
    return "status" in data and data["status"] != found.status


def _calls(kind: str, data: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that an event records as called."""
    if kind == "tool_call":
        return [str(data.get("toolName") or data.get("tool_name") or data.get("name") or "unknown")]
    if kind == "message" and data.get("role") == "assistant":
        return [str(each.get("name")) for each in data.get("tool_calls") or () if isinstance(each, dict)]
    return []


def _data(event: AgentEvent) -> dict[str, Any]:
    try:
        return parse_object(event.data)
    except ValueError:
        return {}


@lru_cache(maxsize=4096)
def read_details(text: str | None) -> Mapping[str, Any]:
    """Return the details of a compliance verdict; empty if they cannot be read."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
