"""ATIF v1.8, Harbor's agent trajectory interchange format: one trajectory for each branch, whatever its outcome.

The steps are the messages of the branch's story (agents/formats/story.py): its main conversation is the trajectory, and
those of sub-agents, and restarted histories, are embedded in it. Arguments are objects there; any other value is
wrapped.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from agents.formats.atif_steps import story_steps, unfit
from agents.formats.branch_story import barred, outcome_fields, story_of, told_by
from agents.formats.chat import tool_list
from agents.formats.shape import Format, Group, Left, Row, Speech
from agents.formats.story import Story, run_id_of
from schemas.branches import BranchRecord

VERSION = "ATIF-v1.8"
NOT_KNOWN = "unknown"
"""ATIF wants a name and a version of every agent."""

NOTHING = ({"source": "system", "message": ""},)
"""The steps of a branch that broke before its first message: ATIF wants one."""

LONGEST_NAME = 160
"""Characters of a rollout's id in a directory name; file systems take 255 bytes."""


def trajectories(group: Group) -> Iterator[Row | Left]:
    """{schema_version, session_id, trajectory_id, agent, steps, final_metrics, extra}."""
    for branch in group.branches:
        category = barred(branch, group)
        rows = [row for row in group.ppo if row.branch_index == branch.branch_index]
        if category:
            yield Left(category)
        elif told_by(branch, group) is None and any(map(unfit, rows)):
            yield Left("not_representable")
        else:
            story = story_of(branch, group)
            lost = tuple(name for each in story.all() for name in each.lost.elements())
            yield Row(_trajectory(branch, group, story), (branch, *rows), folder=folder_of(branch), lost=lost)


def folder_of(branch: BranchRecord) -> str:
    """A directory name for a branch: different for different branches, and short enough for any file system."""
    name = quote(branch.rollout_id, safe="")
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}-b{branch.branch_index}-a{branch.attempt}"


def _trajectory(branch: BranchRecord, group: Group, story: Story) -> dict[str, Any]:
    run_id = run_id_of(branch)
    counted = branch.fidelity == "exact" or any(row.fidelity == "exact" for row in group.ppo)
    steps = story_steps(story.said, counted=counted) or [*NOTHING]
    embedded = [
        {
            "schema_version": VERSION,
            "trajectory_id": f"{run_id}/s{other.number}",
            "agent": _agent(branch, other) | ({"name": other.agent} if other.agent else {}),
            "steps": _numbered(story_steps(other.said, counted=counted)),
        }
        for other in story.others
        if other.said
    ]
    return {
        "schema_version": VERSION,
        "session_id": branch.session_id or run_id,
        "trajectory_id": run_id,
        "agent": _agent(branch, story),
        "steps": _numbered(steps),
        "final_metrics": _metrics(branch, len(steps)),
        "extra": _extra(branch, group, story),
        **({"subagent_trajectories": embedded} if embedded else {}),
    }


def _agent(branch: BranchRecord, story: Story) -> dict[str, Any]:
    agent: dict[str, Any] = {"name": NOT_KNOWN, "version": NOT_KNOWN}
    if branch.agent is not None:
        agent = {"name": branch.agent.name or NOT_KNOWN, "version": branch.agent.version or NOT_KNOWN}
        if branch.agent.model:
            agent["model_name"] = branch.agent.model
    tools = tool_list(story.tools)
    return agent | {"tool_definitions": tools} if tools else agent


def _numbered(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


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


def _extra(branch: BranchRecord, group: Group, story: Story) -> dict[str, Any]:
    ranked = group.ranked(branch.branch_index)
    row = next((each for each in group.by_branch().ppo if each.branch_index == branch.branch_index), None)
    extra = outcome_fields(branch, group) | {
        "status": branch.status,
        "answered": story.has_answer,
        "objective_status": group.status(branch.branch_index),
        "rank": ranked.rank if ranked else None,
        "total": ranked.total if ranked else None,
        "reward": row.reward if row else None,
        "record_id": branch.record_id,
        "raw_digest": branch.raw_digest,
        "fidelity": branch.fidelity if row is None else row.fidelity,
    }
    return {name: value for name, value in extra.items() if value is not None and value != []}


FORMATS = (
    Format(
        "atif", "ATIF v1.8: one agent trajectory for each branch", frozenset({"branches", "ppo", "rejected", "events"}), trajectories,
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
