"""`sts`: the Session Trace Simple Format, the session lines that the Hugging Face Hub shows as traces.

A session is a header and a line for each message. Its file holds nothing else, as the Hub requires: every branch has a
directory of its own. The header and the lines may have more members than the Hub reads; ours are in `braid`, and `braid
import` reads them back.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.atif import folder_of
from agents.formats.branch_story import barred, outcome_fields, rows_of, story_of
from agents.formats.chat import has_media
from agents.formats.shape import Format, Group, Left, Row, Speech
from agents.formats.story import Said, Story, run_id_of
from schemas.branches import BranchRecord
from schemas.jsontext import parse

HARNESS = "braid"
"""The name for a branch whose agent has none."""

LONGEST_TITLE = 80
"""Characters of a session's name: the beginning of its first user message."""


def sessions(group: Group) -> Iterator[Row | Left]:
    """The lines of every branch: its main conversation, then those of its sub-agents and of restarted histories."""
    for branch in group.branches:
        category = barred(branch, group)
        if category:
            yield Left(category)
            continue
        story = story_of(branch, group)
        for each in story.all():
            yield from _session(each, branch, group, is_main=each is story)


def _session(story: Story, branch: BranchRecord, group: Group, *, is_main: bool) -> Iterator[Row]:
    made = (branch, *rows_of(branch, group))
    folder = folder_of(branch) if is_main else f"{folder_of(branch)}-s{story.number}"
    yield Row(_header(story, branch, group, is_main=is_main), made, folder=folder, lost=tuple(story.lost.elements()))
    for each in story.said:
        yield Row(_line(each), made, folder=folder)


def _header(story: Story, branch: BranchRecord, group: Group, *, is_main: bool) -> dict[str, Any]:
    session = run_id_of(branch) if is_main else f"{run_id_of(branch)}/s{story.number}"
    agent = branch.agent
    own = outcome_fields(branch, group) | {
        "main": is_main,
        "sequence": story.number,
        "answered": story.has_answer,
        "agent": None if agent is None else agent.model_dump(exclude_none=True),
        "session_id": branch.session_id,
        "objective_status": group.status(branch.branch_index),
        "tools": parse(story.tools) or None,
        "raw_digest": branch.raw_digest,
    }
    first = next(
        (each.message.content for each in story.said if each.message.role == "user" and not each.context), None
    )
    return {
        "type": "session",
        "harness": story.agent or (agent.name if agent else None) or HARNESS,
        "id": session,
        **({"name": " ".join(first.split())[:LONGEST_TITLE]} if first else {}),
        "braid": {name: value for name, value in own.items() if value is not None},
    }


def _line(said: Said) -> dict[str, Any]:
    told = said.message
    message: dict[str, Any] = {
        "role": "system" if told.role == "developer" else told.role,
        "content": told.content or "",
    }
    if told.reasoning_content is not None:
        message["reasoningContent"] = told.reasoning_content
    if told.tool_calls:
        message["toolCalls"] = [
            {"id": call.id, "function": {"name": call.function.name, "arguments": call.function.arguments}}
            for call in told.tool_calls
        ]
    if told.tool_call_id is not None:
        message["toolCallId"] = told.tool_call_id
    if told.name is not None:
        message["name"] = told.name
    if said.time is not None:
        message["timestamp"] = said.time
    if said.model is not None:
        message["model"] = said.model
    flags = {
        "context": said.context, "failed": said.failed, "given": told.trained is False, "value": said.is_value,
        "null": told.role == "tool" and told.content is None,
    }  # fmt: skip
    own: dict[str, Any] = {name: True for name, is_set in flags.items() if is_set}
    if told.role == "developer":
        own["role"] = told.role
    if has_media(told):
        own["parts"] = parse(told.parts or "")
    return {"type": "message", "message": message} | ({"braid": own} if own else {})


FORMATS = (
    Format(
        "sts", "Session Trace Simple Format: a session for each branch, as the Hugging Face Hub shows traces",
        frozenset({"branches", "ppo", "rejected", "events"}), sessions,
        {"": {"type": "text", "harness": "text", "id": "text", "name": "text", "message": "json", "braid": "json"}},
        files=("jsonl",),
        speech=Speech(media=True, developer=True),
        layouts=("directory",),
        alone="session.jsonl",
    ),
)  # fmt: skip
