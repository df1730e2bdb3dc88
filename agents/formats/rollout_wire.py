"""rollout-wire/v1: whole branches, and the preference and reward records of its second layer. `braid run` reads it back.

The wire format requires fields that we may not know. They are filled, and `filled` lists them, so that no reader takes
a placeholder for a fact. A branch has the calls and results of its conversation if that is known, else those of its
events; it has one reward, from its main sequence. Its scores are 0 or 1: a branch with neither has no pair and no
reward there.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from agents.formats.chat import arguments, in_words
from agents.formats.shape import Column, Format, Group, Left, Row, Speech
from agents.training.messages import is_blank
from schemas.branches import BranchCall, BranchRecord
from schemas.training import DpoRecord, PpoRecord

SOURCE = "wasmagent-rollout"
"""The only source that the wire format allows."""

UNKNOWN_TEMPERATURE = 1.0
"""The default sampling temperature of most services."""

_SCORES = {"pass": 1, "fail": 0}


def wire(group: Group) -> Iterator[Row | Left]:
    """Branches, then pairs, then rewards, each kind in files of its own."""
    if is_blank(group.ranking.task):
        yield from (Left("empty_task") for _ in group.ranking.branches)
        return
    mains = {row.branch_index: row for row in group.by_branch().ppo}
    calls = {branch.branch_index: _steps(branch, mains.get(branch.branch_index)) for branch in group.branches}
    for branch in group.branches:
        category = group.barred(branch.branch_index)
        if category:
            yield Left(category)
        else:
            yield Row(_branch(branch, group, calls[branch.branch_index]), (branch,), "branches")
    for pair in group.dpo:
        made = _pair(pair, group, calls.get(pair.chosen_branch, []))
        yield Left(made) if isinstance(made, str) else Row(made, (pair,), "dpo")
    yield from [Left("other_sequence")] * (len(group.ppo) - len(mains))
    for rewarded in mains.values():
        row = _reward(rewarded, group, calls.get(rewarded.branch_index, []))
        yield Left(row) if isinstance(row, str) else Row(row, (rewarded,), "ppo")


def _branch(branch: BranchRecord, group: Group, calls: list[dict[str, Any]]) -> dict[str, Any]:
    ranked = group.ranked(branch.branch_index)
    required = {
        "temperature": (branch.temperature, UNKNOWN_TEMPERATURE),
        "session_id": (branch.session_id, f"{branch.rollout_id}/b{branch.branch_index}/a{branch.attempt}"),
        "final_answer": (branch.final_answer, ""),
    }
    row: dict[str, Any] = {
        "schema_version": branch.schema_version,
        "rollout_id": branch.rollout_id,
        "task": branch.task or group.ranking.task,
        "branch_index": branch.branch_index,
        "attempt": branch.attempt,
        **{name: filler if known is None else known for name, (known, filler) in required.items()},
        "status": branch.status,
        "tool_call_sequence": calls,
        "build_result": _build(group, branch.branch_index),
    }
    if branch.status == "running":  # not an ending that the format knows: the branch never ended
        row["status"] = "aborted"
    if ranked is not None and ranked.objective_status != "not_required":
        row["objective_status"] = ranked.objective_status
    if ranked is not None and ranked.objective_status in _SCORES:
        row["objective_score"] = _SCORES[ranked.objective_status]
    if ranked is not None and ranked.rank is not None:
        row["rank"] = ranked.rank
    if ranked is not None and ranked.total is not None:
        row["total_score"] = ranked.total
    if branch.agent is not None:
        row["agent"] = {name: value for name, value in branch.agent.plain().items() if value is not None}
    if branch.seed is not None:
        row["seed"] = branch.seed
    filled = [name for name, (known, _) in required.items() if known is None]
    return row | {"filled": filled} if filled else row


def _build(group: Group, branch_index: int) -> dict[str, Any] | None:
    """The outcome of the build, from the evidence; null if it is not known."""
    evidence = group.evidence.get(branch_index)
    for result in evidence.verifier_results if evidence else ():
        if result.verifier_id == "build":
            return {"status": "pass" if result.passed else "fail"}
    return None


def _calls(branch: BranchRecord) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for call in branch.tool_calls:
        if call.paired:
            data: dict[str, Any] = {"toolName": call.name, "args": arguments(call.arguments), "callId": call.call_id}
            if call.step is not None:
                data["stepIndex"] = call.step
            if call.text is not None:
                data["text"] = call.text
            # One batch for each turn: parallel calls stay together when the record is read back.
            events.append(_event("tool_call", data | {"batchId": f"turn-{call.turn}"}, call.started_ms))
        if call.output_digest is not None:
            events.append(_event("tool_result", _result(call), call.ended_ms))
    return events


def _steps(branch: BranchRecord, main: PpoRecord | None) -> list[dict[str, Any]]:
    return _said(main) if main is not None and in_words(main) else _calls(branch)


def _said(row: PpoRecord) -> list[dict[str, Any]]:
    """The calls of a conversation and the results that the model saw."""
    events: list[dict[str, Any]] = []
    for turn, said in enumerate(row.completion):
        for place, call in enumerate(said.tool_calls):
            data = {"toolName": call.function.name, "args": arguments(call.function.arguments), "callId": call.id}
            text = {"text": said.content} if said.content and not place else {}
            events.append(_event("tool_call", {**data, **text, "batchId": f"turn-{turn}"}, None))
        if said.role == "tool":
            answer = {"toolName": said.name or "", "callId": said.tool_call_id, "output": said.content or ""}
            events.append(_event("tool_result", answer, None))
    return events


def _result(call: BranchCall) -> dict[str, Any]:
    data: dict[str, Any] = {"toolName": call.name, "callId": call.call_id}
    if call.output_summary is not None:
        data["output"] = call.output_summary
    if call.error is not None:
        data["error"] = {key: value for key, value in call.error.plain().items() if value is not None}
    return data


def _event(kind: str, data: dict[str, Any], at: int | None) -> dict[str, Any]:
    event: dict[str, Any] = {"channel": "tool", "event": kind, "data": data}
    return event if at is None else event | {"timestamp_ms": at}


def _pair(record: DpoRecord, group: Group, calls: list[dict[str, Any]]) -> dict[str, Any] | str:
    if is_blank(record.chosen_answer) or is_blank(record.rejected_answer):
        return "empty_answer"
    if record.chosen_answer == record.rejected_answer:
        return "same_answer"
    statuses = group.status(record.chosen_branch), group.status(record.rejected_branch)
    if not all(status in _SCORES for status in statuses):
        return "no_objective_score"
    return {
        "prompt": record.task,
        "chosen": record.chosen_answer,
        "rejected": record.rejected_answer,
        "tool_call_sequence": calls,
        "provenance": {
            "source": SOURCE,
            "rollout_id": record.rollout_id,
            "chosen_branch": record.chosen_branch,
            "rejected_branch": record.rejected_branch,
            "objective_score": {"chosen": _SCORES[statuses[0]], "rejected": _SCORES[statuses[1]]},
            **_when(group, record.task),
        },
    }


def _reward(record: PpoRecord, group: Group, calls: list[dict[str, Any]]) -> dict[str, Any] | str:
    status = group.status(record.branch_index)
    if status not in _SCORES:
        return "no_objective_score"
    return {
        "prompt": record.task,
        "completion": record.final_answer or "",
        "reward": record.reward if record.total is None else record.total,
        "tool_call_sequence": calls,
        "provenance": {
            "source": SOURCE,
            "rollout_id": record.rollout_id,
            "branch_index": record.branch_index,
            "objective_score": _SCORES[status],
            **_when(group, record.task),
        },
    }


def _when(group: Group, task: str) -> dict[str, Any]:
    """The time of the closing decision, not of the export: the same rollout gives the same row."""
    return {
        "exported_at_ms": max(0, group.ranking.closed_at_ms),
        "n_gram_hash": sha256(task.encode()).hexdigest()[:16],
    }


_COMMON: dict[str, Column] = {"tool_call_sequence": "json", "provenance": "json"}

FORMATS = (
    Format(
        "rollout-wire", "rollout-wire/v1: branches, preference and reward records",
        frozenset({"branches", "dpo", "ppo", "rejected"}), wire,
        {
            "branches": {
                "schema_version": "text", "rollout_id": "text", "task": "text", "branch_index": "whole", "attempt": "whole",
                "temperature": "real", "session_id": "text", "final_answer": "text", "status": "text",
                "tool_call_sequence": "json", "build_result": "json", "objective_status": "text", "objective_score": "whole",
                "rank": "whole", "total_score": "real", "agent": "json", "seed": "whole", "filled": "json",
            },
            "dpo": {"prompt": "text", "chosen": "text", "rejected": "text", **_COMMON},
            "ppo": {"prompt": "text", "completion": "text", "reward": "real", **_COMMON},
        },
        speech=Speech(reasoning=False),
    ),
)  # fmt: skip
