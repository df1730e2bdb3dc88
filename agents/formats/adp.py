"""adp: trajectories of the agent data protocol 1.5.0, one for each branch, for tools that train on many agents' data at once.

The protocol allows no other keys than its own. Every call has one later observation with its id, and every observation
a call; a call without a result is marked. The definitions of all tools are in `metadata.json`, next to the rows.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from agents.formats.branch_story import AUDIT_ONLY
from agents.formats.chat import arguments, tool_list
from agents.formats.shape import Format, Group, Left, Row, Speech, ToolUse
from agents.training.messages import is_blank
from schemas.branches import BranchCall, BranchRecord
from schemas.jsontext import compact
from schemas.training import PpoRecord

VERSION = "1.5.0"
SHELL = "bash"
SHELLS = frozenset(
    {"bash", "sh", "shell", "run", "run_command", "run_shell", "execute_bash", "execute_command", "terminal", "exec"}
)
"""Tools whose one argument is a command of a shell."""
COMMANDS = ("command", "cmd")
NO_RESULT = "(no result)"
PART = "rows"
"""Its files are called rows-*.jsonl, because metadata.json is in the same folder."""


def trajectories(group: Group) -> Iterator[Row | Left]:
    """One row for each branch that is neither quarantined nor rejected; one that is kept for audit has no reward."""
    mains = {row.branch_index: row for row in group.by_branch().ppo}
    offered = {tool["function"]["name"]: tool for row in group.ppo for tool in tool_list(row.tools)}
    for branch in group.branches:
        task = branch.task or group.ranking.task
        category = group.barred(branch.branch_index)
        category = None if category == AUDIT_ONLY else category
        if category is not None or is_blank(task):
            yield Left(category or "empty_task")
            continue
        steps = _steps(branch)
        if not steps and is_blank(branch.final_answer):
            yield Left("empty_completion")
            continue
        rewarded = mains.get(branch.branch_index)
        content = [{"class_": "text_observation", "content": task, "name": None, "source": "user"}, *steps]
        if branch.final_answer is not None and not is_blank(branch.final_answer):
            content.append(_answer(branch.final_answer, rewarded))
        value = {
            "schema_version": VERSION,
            "id": f"{branch.rollout_id}/b{branch.branch_index}/a{branch.attempt}",
            "content": content,
            "details": _details(branch, group, rewarded),
        }
        yield Row(value, (branch,) if rewarded is None else (branch, rewarded), PART, uses=_uses(steps, offered))


def _answer(answer: str, rewarded: PpoRecord | None) -> dict[str, Any]:
    action = {"class_": "message_action", "content": answer, "description": None}
    return action if rewarded is None else action | {"reward": rewarded.reward}


def _details(branch: BranchRecord, group: Group, rewarded: PpoRecord | None) -> dict[str, Any]:
    return {
        "rollout_id": branch.rollout_id,
        "branch_index": branch.branch_index,
        "objective_status": group.status(branch.branch_index),
        "reward": None if rewarded is None else rewarded.reward,
        "admission_score": None if rewarded is None else rewarded.admission.score,
    }


def _steps(branch: BranchRecord) -> list[dict[str, Any]]:
    """The calls of each turn, then their results: parallel calls stay together."""
    steps: list[dict[str, Any]] = []
    number = 0
    called = [call for call in branch.tool_calls if call.paired]
    for _, turn in groupby(called, key=lambda call: call.turn):
        calls = [(f"call_{number + at:06}", call) for at, call in enumerate(turn, start=1)]
        number += len(calls)
        steps += [_action(call, call_id) for call_id, call in calls]
        steps += [_observation(call, call_id) for call_id, call in calls]
    return steps


def _action(call: BranchCall, call_id: str) -> dict[str, Any]:
    given = arguments(call.arguments)
    command = _command(call.name, given)
    said = {"description": call.text or None, "tool_call_id": call_id}
    if command is not None:
        return {"class_": "code_action", "language": SHELL, "content": command, **said}
    kwargs = given if isinstance(given, dict) else {"arguments": given}
    return {"class_": "api_action", "function": call.name, "kwargs": kwargs, **said}


def _command(name: str, given: Any) -> str | None:
    """The command of a shell call; None for any other tool, and if there are more arguments than the command."""
    if name.lower() not in SHELLS or not isinstance(given, dict) or len(given) != 1:
        return None
    command = next((given[key] for key in COMMANDS if key in given), None)
    return command if isinstance(command, str) else None


def _observation(call: BranchCall, call_id: str) -> dict[str, Any]:
    text = call.output_summary
    if call.error is not None:
        text = "\n".join(part for part in (text, call.error.message) if part)
    return {
        "class_": "text_observation", "content": text or ("" if call.output_digest is not None else NO_RESULT), "name": None,
        "source": "environment", "tool_call_id": call_id,
    }  # fmt: skip


def _uses(steps: list[dict[str, Any]], offered: dict[str, Any]) -> ToolUse:
    called = sorted({step["function"] for step in steps if step["class_"] == "api_action"})
    tools = {name: compact(offered.get(name) or tool_list(compact([name]))[0]) for name in called}
    return ToolUse(tools, (SHELL,) if any(step["class_"] == "code_action" for step in steps) else ())


FORMATS = (
    Format(
        "adp", "Trajectories of the agent data protocol 1.5.0: actions and observations of each branch", frozenset({"branches", "ppo"}),
        trajectories,
        {PART: {"schema_version": "text", "id": "text", "content": "json", "details": "json"}},
        files=("jsonl",),
        speech=Speech(reasoning=False),
        tools_beside=True,
    ),
)  # fmt: skip
