"""The ComplianceEvalRecord of a closed branch: its rounds from its events, its result from its verdict alone."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from agents.redaction.redaction import redact_json
from agents.summarize.pieces import Piece, Round
from agents.training.compliance_rows import verified_rounds
from agents.verdicts.meaning import COMPLIANCE, INCONSISTENT_COMPLIANCE, Verdict, compliance_details, compliance_flags
from schemas.branches import BranchRecord
from schemas.compliance import ENGINE, MODES, ComplianceAttempt, ComplianceEvalRecord, ComplianceMode
from schemas.jsontext import compact
from schemas.lifecycle import RolloutOpened
from schemas.verdicts import CheckVerdict

_STRATEGIES: Final = {"retry": "full", "direct": "full"}
MOST_MESSAGE: Final = 1000


def eval_record(
    branch: BranchRecord, pieces: Sequence[Piece], verdicts: Mapping[str, Verdict], opened: RolloutOpened
) -> ComplianceEvalRecord | None:
    """Return the record of a branch, without its id; None for a branch that is not a compliance run."""
    rounds = [each.body for piece in pieces for each in piece.noted if isinstance(each.body, Round)]
    mode = rounds[0].mode if rounds else _planned_mode(branch, opened)
    if mode is None:
        return None
    verdict = verdicts.get(COMPLIANCE)
    check = verdict if isinstance(verdict, CheckVerdict) else None
    details = {} if check is None else compliance_details(check)
    failed = branch.status != "answered"
    status = "unknown" if failed or check is None else check.status
    seen = verified_rounds(rounds, details)
    draft = rounds[0] if rounds else None
    first = {} if draft is None else seen.get(draft.number, {})
    answer = branch.final_answer if branch.final_answer is not None else rounds[-1].output if rounds else ""
    flags = [
        *(compliance_flags(check) if check is not None else ()),
        *(["truncated"] if any(each.truncated for each in rounds) else []),
    ]
    held = [each for each in rounds if each.number and each.committed]
    if status == "fail" and len(rounds) > 1:
        flags.append("exhausted")
    return ComplianceEvalRecord(
        record_id="-",
        rollout_id=branch.rollout_id,
        branch_index=branch.branch_index,
        attempt=branch.attempt,
        task_id=opened.labels.get("task_id") or branch.rollout_id,
        task_spec_hash=str(details.get("spec_hash") or sha256((opened.spec or "").encode()).hexdigest()),
        model=(branch.agent.model if branch.agent else None) or "unknown",
        mode=mode,
        seed=branch.seed,
        engine=str(details.get("engine") or ENGINE),
        status=status,
        violations=_cleaned(first.get("violations", [])),
        final_violations=_cleaned(details.get("violations", [])),
        repair_trace=compact([_step(each, rounds[number], seen) for number, each in enumerate(rounds[1:])]),
        repair_rounds=len(rounds[1:]),
        final_pass=status == "pass" and INCONSISTENT_COMPLIANCE not in flags,
        artifact=answer,
        made_by="edit" if held and all(each.made_by == "edit" for each in held) else "model",
        prompt_tokens=None if draft is None else draft.input_tokens,
        generation_tokens=None if draft is None else draft.output_tokens,
        repair_tokens=sum((each.input_tokens or 0) + (each.output_tokens or 0) for each in rounds[1:]),
        latency_ms=sum(each.latency_ms or 0 for each in rounds),
        trace_uri=f"braid:{branch.rollout_id}/b{branch.branch_index}/a{branch.attempt}",
        error=compact(_error(branch)) if failed else None,
        flags=tuple(sorted(flags)),
        attempts=tuple(_attempt(each, seen) for each in rounds),
    )


def _planned_mode(branch: BranchRecord, opened: RolloutOpened) -> ComplianceMode | None:
    """Return the mode of a run whose provider gave no draft, so that it is counted as unknown; None where it is not stated."""
    modes = opened.labels.get("modes", "").split(",")
    found = modes[branch.branch_index] if branch.branch_index < len(modes) else modes[0]
    return next((mode for mode in MODES if mode == found and branch.status == "infra_error"), None)


def _cleaned(violations: Any) -> str:
    return compact(redact_json(violations).value if isinstance(violations, list) else [])


def _ids(seen: Mapping[int, dict[str, Any]], number: int) -> list[str]:
    found = seen.get(number, {}).get("violations", [])
    return [each["constraint_id"] for each in found if isinstance(each, dict) and "constraint_id" in each]


def _step(each: Round, before: Round, seen: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Return one RepairStep. The constraints that still fail in the committed text."""
    base = each.base if each.base is not None else before.number
    failing = _ids(seen, each.number if each.committed else base)
    target = list(each.target) or _ids(seen, base) or ["unknown"]
    cost = {"prompt": each.input_tokens, "generation": each.output_tokens}
    step: dict[str, Any] = {
        "round": max(each.number, 1),
        "violation_ids": target,
        "strategy": _STRATEGIES.get(each.strategy, each.strategy),
        "ok": each.committed and each.number in seen and not set(target) & set(failing),
        "rolled_back": each.rolled_back,
        "remaining_violation_ids": failing,
        "token_cost": {name: count for name, count in cost.items() if count is not None},
    }
    return step | ({} if each.latency_ms is None else {"latency_ms": each.latency_ms})


def _error(branch: BranchRecord) -> dict[str, str]:
    kind = "model_error" if branch.status == "infra_error" else "unknown"
    return {"kind": kind, "message": (branch.error or branch.status)[:MOST_MESSAGE], "stage": "generate"}


def _attempt(each: Round, seen: Mapping[int, dict[str, Any]]) -> ComplianceAttempt:
    known = seen.get(each.number, {})
    status = known.get("status")
    return ComplianceAttempt(
        round=each.number,
        strategy=each.strategy,
        target=each.target,
        base_round=each.base,
        output=each.output,
        made_by=each.made_by,
        committed=each.committed,
        rolled_back=each.rolled_back,
        reason=each.reason,
        status=status if status in ("pass", "fail") else "unknown",
        violations=_cleaned(known.get("violations", [])),
        input_tokens=each.input_tokens,
        output_tokens=each.output_tokens,
        cached_tokens=each.cached_tokens,
        latency_ms=each.latency_ms,
    )
