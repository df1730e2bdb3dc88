"""ATIF v1.8, Harbor's agent trajectory interchange format: one trajectory for each branch.

A turn is one agent step with its calls and their observations. Arguments are objects there; what is none is wrapped. Where the
conversation is known the steps are its messages (agents/formats/atif_steps.py): the main sequence is the trajectory, and the others
are embedded in it. Else they are made from the events of the branch.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from typing import Any
from urllib.parse import quote

from agents.formats.atif_steps import conversation_steps, object_of, unfit
from agents.formats.chat import in_words, tool_list
from agents.formats.outcomes import verdict_lines
from agents.formats.shape import Format, Group, Left, Made, Row, Speech
from agents.training.messages import tool_content
from schemas.branches import BranchCall, BranchRecord
from schemas.training import PpoRecord

VERSION = "ATIF-v1.8"
NOT_KNOWN = "unknown"
"""ATIF wants a name and a version of every agent."""

NO_CONVERSATION = "conversation"
"""Lost of a branch without a row of its conversation: its user messages, and outputs in full."""

LONGEST_NAME = 160
"""Characters of a rollout's id in a directory name; file systems take 255 bytes."""


def trajectories(group: Group) -> Iterator[Row | Left]:
    """{schema_version, session_id, trajectory_id, agent, steps, final_metrics, extra}."""
    mains = {row.branch_index: row for row in group.by_branch().ppo}
    for branch in group.branches:
        category = group.barred(branch.branch_index)
        row = mains.get(branch.branch_index)
        others = [each for each in group.ppo if each.branch_index == branch.branch_index and each is not row]
        if category:
            yield Left(category)
        elif any(unfit(each) for each in (row, *others) if each is not None):
            yield Left("not_representable")
        else:
            made: tuple[Made, ...] = (branch,) if row is None else (branch, row, *others)
            lost = () if row is not None and in_words(row) else (NO_CONVERSATION,)
            yield Row(_trajectory(branch, group, row, others), made, folder=_folder(branch), lost=lost)


def _folder(branch: BranchRecord) -> str:
    """A directory name for a branch: different for different branches, and short enough for any file system."""
    name = quote(branch.rollout_id, safe="")
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}-b{branch.branch_index}-a{branch.attempt}"


def _trajectory(branch: BranchRecord, group: Group, row: PpoRecord | None, others: list[PpoRecord]) -> dict[str, Any]:
    run_id = f"{branch.rollout_id}/b{branch.branch_index}/a{branch.attempt}"
    steps = conversation_steps(row) if row is not None and in_words(row) else _steps(branch, row)
    _mark_errors(steps, branch)
    embedded = [
        {
            "schema_version": VERSION,
            "trajectory_id": f"{run_id}/s{other.sequence or 0}",
            "agent": _agent(branch, other) | ({"name": other.agent} if other.agent else {}),
            "steps": _numbered(conversation_steps(other)),
        }
        for other in others
    ]
    return {
        "schema_version": VERSION,
        "session_id": branch.session_id or run_id,
        "trajectory_id": run_id,
        "agent": _agent(branch, row),
        "steps": _numbered(steps),
        "final_metrics": _metrics(branch, len(steps)),
        "extra": _extra(branch, group, row),
        **({"subagent_trajectories": embedded} if embedded else {}),
    }


def _mark_errors(steps: list[dict[str, Any]], branch: BranchRecord) -> None:
    """Mark the results of calls that failed, where the steps tell the calls of the branch one by one."""
    calls = [(step, call) for step in steps for call in step.get("tool_calls", ())]
    known = [call for call in branch.tool_calls if call.paired]
    if [call["function_name"] for _, call in calls] != [call.name for call in known]:
        return
    for (step, call), told in zip(calls, known, strict=True):
        if told.error is not None:
            for result in step.get("observation", {}).get("results", ()):
                if result.get("source_call_id") == call["tool_call_id"]:
                    result["extra"] = {"is_error": True}


def _agent(branch: BranchRecord, row: PpoRecord | None) -> dict[str, Any]:
    agent: dict[str, Any] = {"name": NOT_KNOWN, "version": NOT_KNOWN}
    if branch.agent is not None:
        agent = {"name": branch.agent.name or NOT_KNOWN, "version": branch.agent.version or NOT_KNOWN}
        if branch.agent.model:
            agent["model_name"] = branch.agent.model
    tools = tool_list(row.tools) if row is not None else []
    return agent | {"tool_definitions": tools} if tools else agent


def _numbered(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _steps(branch: BranchRecord, row: PpoRecord | None) -> list[dict[str, Any]]:
    given = [(said.role, said.content or "") for said in row.prompt] if row is not None else [("user", branch.task)]
    steps: list[dict[str, Any]] = [
        {"source": "system" if role == "system" else "user", "message": content} for role, content in given
    ]
    asked = [call for call in branch.tool_calls if call.paired]
    for _, turn in groupby(asked, key=lambda call: call.turn):
        steps.append(_turn(list(turn)))
    if branch.final_answer:
        steps.append({"source": "agent", "message": branch.final_answer, **_at(branch.last_event_ms)})
    return steps


def _turn(calls: list[BranchCall]) -> dict[str, Any]:
    ids = _unique([call.call_id for call in calls])
    named = list(zip(ids, calls, strict=True))
    return {
        "source": "agent",
        "message": "\n\n".join(call.text for call in calls if call.text),
        **_at(calls[0].started_ms),
        "tool_calls": [
            {"tool_call_id": call_id, "function_name": call.name, "arguments": object_of(call.arguments)}
            for call_id, call in named
        ],
        "observation": {"results": [{"source_call_id": call_id, "content": _output(call)} for call_id, call in named]},
    }


def _output(call: BranchCall) -> str:
    """What a tool returned; an error that says the same is not said twice."""
    once = (
        call.error is not None
        and call.output_summary is not None
        and call.error.message.startswith(call.output_summary)
    )
    return call.output_summary or "" if once else tool_content(call)


def _unique(ids: list[str]) -> list[str]:
    """A producer may repeat an id; inside a step each call needs its own."""
    return [call_id if call_id not in ids[:place] else f"{call_id}#{place}" for place, call_id in enumerate(ids)]


def _at(milliseconds: int | None) -> dict[str, str]:
    if milliseconds is None or not 0 <= milliseconds < 253_402_300_800_000:
        return {}
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return {"timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def _metrics(branch: BranchRecord, steps: int) -> dict[str, Any]:
    metrics: dict[str, Any] = {"total_steps": steps}
    if branch.usage is not None:
        used = {
            "total_prompt_tokens": branch.usage.input_tokens,
            "total_completion_tokens": branch.usage.output_tokens,
            "total_cached_tokens": branch.usage.cached_tokens,
            "total_cost_usd": branch.usage.usd,
        }
        metrics |= {name: value for name, value in used.items() if value is not None}
    return metrics


def _extra(branch: BranchRecord, group: Group, row: PpoRecord | None) -> dict[str, Any]:
    ranked = group.ranked(branch.branch_index)
    extra = {
        "rollout_id": branch.rollout_id,
        "branch_index": branch.branch_index,
        "attempt": branch.attempt,
        "status": branch.status,
        "ended": branch.status,
        "error": branch.error,
        "objective_status": group.status(branch.branch_index),
        "rank": ranked.rank if ranked else None,
        "total": ranked.total if ranked else None,
        "reward": row.reward if row else None,
        "record_id": branch.record_id,
        "raw_digest": branch.raw_digest,
        "fidelity": branch.fidelity if row is None else row.fidelity,
        "verdicts": verdict_lines(group, branch.branch_index) or None,
    }
    return {name: value for name, value in extra.items() if value is not None}


FORMATS = (
    Format(
        "atif", "ATIF v1.8: one agent trajectory for each branch", frozenset({"branches", "ppo", "rejected"}), trajectories,
        {
            "": {
                "schema_version": "text", "session_id": "text", "trajectory_id": "text",
                "agent": "json", "steps": "json", "final_metrics": "json", "extra": "json", "subagent_trajectories": "json",
            }
        },
        speech=Speech(media=True),
        layouts=("files", "directory"),
    ),
)  # fmt: skip
