"""`messages`: plain chat lines, the only format that represents a conversation completely.

A line is one conversation with everything known about it: which messages the model said, how they are known, and the
reward of the branch. Every branch has a line, whatever its outcome (agents/formats/story.py); `trained` is empty if
there is no training row of it. Media are parts in `content`, with their digests.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.branch_story import barred, outcome_fields, places, rows_of, story_of, told_by
from agents.formats.chat import is_trained, messages
from agents.formats.limits import messages_of
from agents.formats.shape import Column, Format, Group, Left, ListOf, Row, Speech
from agents.formats.story import Said, Story
from schemas.branches import BranchRecord
from schemas.jsontext import parse
from schemas.training import PpoRecord, SftRecord

_SPEECH = Speech(media=True, developer=True, objects=True)


def conversations(group: Group) -> Iterator[Row | Left]:
    """{id, messages, tools, trained, ...}: one for each conversation of a branch."""
    told = {branch.branch_index for branch in group.branches if _is_told(branch, group)}
    for branch in group.branches:
        if branch.branch_index in told:
            category = barred(branch, group)
            yield from (Left(category),) if category else _branch(branch, group)
    imitated = {_place(record): record for record in group.sft if record.branch_index not in told}
    for rewarded in group.ppo:
        if rewarded.branch_index in told:
            continue
        also = imitated.pop(_place(rewarded), None)
        made = (rewarded,) if also is None else (rewarded, also)
        yield Row(_line(rewarded, group) | _worth(rewarded, is_imitated=also is not None), made)
    for record in imitated.values():
        yield Row(_line(record, group) | {"imitated": True}, (record,))


def _is_told(branch: BranchRecord, group: Group) -> bool:
    """Whether the story of a branch comes from its events. A row made of steps has the steps as the model saw them, so
    it is preferred.
    """
    has_row = branch.fidelity == "reconstructed" and bool(rows_of(branch, group))
    return told_by(branch, group) is not None and not has_row


def _worth(rewarded: PpoRecord, *, is_imitated: bool) -> dict[str, Any]:
    return {
        "final_answer": rewarded.final_answer,
        "reward": rewarded.reward,
        "advantage": rewarded.advantage,
        "imitated": is_imitated,
    }


# -- of events -----------------------------------------------------------------------------------------------------------


def _branch(branch: BranchRecord, group: Group) -> Iterator[Row]:
    """The lines of a branch whose events are a conversation: its own first."""
    story, rows = story_of(branch, group), rows_of(branch, group)
    stories = list(story.all())
    for each in stories:
        made = [row for row in rows if len(stories) == 1 or (row.sequence or 0) == each.number]
        line = _told(each, branch, group, made, is_main=each is story, n=len(stories))
        yield Row(line, (branch, *made), lost=tuple(each.lost.elements()))


def _told(
    story: Story, branch: BranchRecord, group: Group, rows: list[SftRecord | PpoRecord], *, is_main: bool, n: int
) -> dict[str, Any]:
    said, after = trailing(story.said)
    ranked = group.ranked(branch.branch_index)
    rewarded = next((row for row in rows if isinstance(row, PpoRecord)), None)
    line = {
        "id": rows[0].record_id if rows else branch.record_id if is_main else f"{branch.record_id}-{story.number}",
        "messages": messages([each.message for each in said], _SPEECH, group.style),
        "tools": parse(story.tools),
        "trained": [place for place, each in enumerate(said) if rows and is_trained(each.message)],
        "fidelity": branch.fidelity,
        "agent": story.agent or (branch.agent.name if branch.agent else None),
        "sequence": story.number,
        "n_sequences": n,
        "task": rows[0].task if rows else None,
        "model": branch.agent.model if branch.agent else None,
        "status": group.status(branch.branch_index),
        "rank": ranked.rank if ranked is not None else None,
        "main": is_main,
        "answered": story.has_answer,
        "after": [each.message.content or "" for each in after],
        **places(said),
        **outcome_fields(branch, group),
    }
    if rewarded is not None:
        line |= _worth(rewarded, is_imitated=any(isinstance(row, SftRecord) for row in rows))
    return {name: value for name, value in line.items() if value is not None}


def trailing(said: tuple[Said, ...]) -> tuple[tuple[Said, ...], tuple[Said, ...]]:
    """A conversation, and the user messages without a response: for a trainer they do not belong to it."""
    end = len(said)
    while (
        end
        and said[end - 1].message.role == "user"
        and said[end - 1].message.parts is None
        and not said[end - 1].context
    ):
        end -= 1
    return (said[:end], said[end:]) if end else (said, ())


# -- of rows -------------------------------------------------------------------------------------------------------------


def _place(record: SftRecord | PpoRecord) -> tuple[int, int, int]:
    return record.branch_index, record.attempt, record.sequence or 0


def _line(record: SftRecord | PpoRecord, group: Group) -> dict[str, Any]:
    said = messages_of(record)
    ranked = group.ranked(record.branch_index)
    return {
        "id": record.record_id,
        "messages": messages(said, _SPEECH, group.style),
        "tools": parse(record.tools),
        "trained": [place for place, each in enumerate(said) if is_trained(each)],
        "fidelity": record.fidelity,
        "agent": record.agent,
        "sequence": record.sequence,
        "n_sequences": record.n_sequences,
        "rollout_id": record.rollout_id,
        "branch_index": record.branch_index,
        "attempt": record.attempt,
        "task": record.task,
        "model": record.model,
        "status": group.status(record.branch_index),
        "rank": ranked.rank if ranked is not None else None,
    }


_ABOUT: dict[str, Column] = {
    "fidelity": "text", "agent": "text", "sequence": "whole", "n_sequences": "whole", "rollout_id": "text",
    "branch_index": "whole", "attempt": "whole", "task": "text", "model": "text", "status": "text", "rank": "whole",
    "final_answer": "text", "reward": "real", "advantage": "real", "imitated": "truth", "main": "truth", "answered": "truth",
    "after": ListOf("text"), "context": ListOf("whole"), "errors": ListOf("whole"), "values": ListOf("whole"),
    "given": ListOf("whole"), "ended": "text", "error": "text", "verdicts": "json", "usage": "json", "temperature": "real",
    "seed": "whole", "labels": "json", "admission": "text", "branches": "whole",
}  # fmt: skip

FORMATS = (
    Format(
        "messages", "Plain chat lines: every conversation with its reward, and which messages the model said",
        frozenset({"sft", "ppo", "branches", "rejected", "events"}), conversations,
        {"": {"id": "text", "messages": "json", "tools": "json", "trained": ListOf("whole"), **_ABOUT}},
        speech=_SPEECH,
    ),
)  # fmt: skip
