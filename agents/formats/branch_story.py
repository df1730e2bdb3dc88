"""Chooses the story of a branch by what is known of it, and the outcome recorded with it."""

from typing import Any

from agents.formats.exact_story import exact_story
from agents.formats.outcomes import verdict_lines
from agents.formats.shape import Group, ToldBranch
from agents.formats.story import Said, Story, row_story
from agents.formats.told_story import Given, transcript_story
from agents.redaction.redaction import redact, redact_json
from agents.training.messages import is_blank
from schemas.branches import BranchRecord
from schemas.event_kinds import CONVERSATION
from schemas.jsontext import compact, parse
from schemas.training import PpoRecord, SftRecord

AUDIT_ONLY = "audit_only"
"""The admission category of rows that are uncertain, or have little evidence."""


def story_of(branch: BranchRecord, group: Group) -> Story:
    """The story of a branch: from its events if these form a conversation, else from its rows or its record."""
    told = told_by(branch, group)
    if told is None:
        return row_story(branch, group)
    given = _given(group)
    if any(event.channel == CONVERSATION and event.event == "message" for _, event in told.events):
        story = exact_story(told.events, given)
    else:
        story = transcript_story([event for _, event in told.events], given)
    if group.facts.opened is not None and not group.facts.opened.task_shown and not is_blank(group.facts.opened.task):
        story.lost["hidden_task"] += 1
    return story


def told_by(branch: BranchRecord, group: Group) -> ToldBranch | None:
    """The facts of a branch, if they are available; None under emission version 1, which has no conversations."""
    return group.facts.branches.get(branch.branch_index) if branch.fidelity is not None else None


def barred(branch: BranchRecord, group: Group) -> str | None:
    """Why a branch is in no trace: its admission category, or that it never began. A branch that is kept for audit is
    exported, with that mark and untrained.
    """
    if branch.n_events == 0 and branch.status == "running":
        return "no_events"
    category = group.barred(branch.branch_index)
    return None if category == AUDIT_ONLY and told_by(branch, group) is not None else category


def _given(group: Group) -> Given:
    opened, redacting = group.facts.opened, group.facts.redacting
    if opened is None:
        return Given(redacting=redacting, reasoning=group.facts.reasoning)

    def clean(text: str | None) -> str | None:
        return text if text is None or not redacting else redact(text).text

    tools = compact(redact_json(parse(opened.tools)).value) if redacting else opened.tools
    shown = opened.task if opened.task_shown and not is_blank(opened.task) else None
    return Given(clean(opened.system_prompt), clean(shown), tools, redacting, group.facts.reasoning)


def outcome_fields(branch: BranchRecord, group: Group) -> dict[str, Any]:
    """The place of a branch, its end, its verdicts and its usage: under the names that `braid import` reads back;
    unknown ones are null.
    """
    told = group.facts.branches.get(branch.branch_index)
    opened = group.facts.opened
    return {
        "rollout_id": branch.rollout_id,
        "branch_index": branch.branch_index,
        "attempt": branch.attempt,
        "ended": branch.status,
        "error": branch.error,
        "verdicts": verdict_lines(group, branch.branch_index, () if told is None else told.verdicts),
        "usage": None if branch.usage is None else branch.usage.model_dump(exclude_none=True),
        "temperature": branch.temperature,
        "seed": branch.seed,
        "admission": AUDIT_ONLY if group.barred(branch.branch_index) == AUDIT_ONLY else None,
        "branches": None if opened is None else opened.branches,
        "labels": dict(opened.labels) if opened is not None and opened.labels else None,
    }


def places(said: tuple[Said, ...]) -> dict[str, list[int]]:
    """Positions of messages with additional facts, under the names that `braid import` reads back."""
    found = {
        "context": [place for place, each in enumerate(said) if each.context],
        "errors": [place for place, each in enumerate(said) if each.failed],
        "values": [place for place, each in enumerate(said) if each.is_value],
        "given": [place for place, each in enumerate(said) if each.message.trained is False],
    }
    return {name: positions for name, positions in found.items() if positions}


def rows_of(branch: BranchRecord, group: Group) -> list[SftRecord | PpoRecord]:
    """The training rows of a branch."""
    rows: list[SftRecord | PpoRecord] = [*group.ppo, *group.sft]
    return [row for row in rows if row.branch_index == branch.branch_index]
