"""The whole conversation of a branch for trace formats: everything said, called and returned, in order, whatever its
outcome.

Its source is the branch's own events, if these form a conversation. For a branch that is known by its steps alone, it
is the row made of them, or else its record. A story is not a training row: nothing is kept out, and anything that it
cannot represent is counted.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from agents.formats.chat import in_words
from agents.formats.shape import Group, main_sequence
from agents.training.messages import tool_content
from schemas.branches import BranchCall, BranchRecord
from schemas.training import FunctionCall, Message, PpoRecord, ToolCall

NO_CONVERSATION = "conversation"
"""Missing from a branch of which only steps are known: its user messages, and outputs in full."""


class Said(NamedTuple):
    """A message of a story, and additional facts about it."""

    message: Message
    context: bool = False
    """Words that were given to the model as context; or that another story of the branch contains."""
    failed: bool = False
    """Of a tool message: whether the producer marks an error."""
    is_value: bool = False
    """Whether its content is the JSON of a value that is not a text."""
    time: int | None = None
    model: str | None = None


@dataclass(frozen=True)
class Story:
    """One conversation of a branch."""

    said: tuple[Said, ...]
    tools: str = "[]"
    """The tools on offer: a JSON array as text."""
    agent: str | None = None
    others: tuple["Story", ...] = ()
    """The stories of sub-agents, and of restarted histories."""
    number: int = 0
    """Its place among the conversations of the branch."""
    has_answer: bool = False
    """Whether its last text is the final answer."""
    lost: Counter[str] = field(default_factory=Counter)
    """Fields that have no place in any message, by name."""

    def all(self) -> Iterator["Story"]:
        """This story, and the others."""
        yield self
        for other in self.others:
            yield from other.all()


def run_id_of(branch: BranchRecord) -> str:
    """The name of a branch's attempt: `<rollout>/b<index>/a<attempt>`."""
    return f"{branch.rollout_id}/b{branch.branch_index}/a{branch.attempt}"


def row_story(branch: BranchRecord, group: Group) -> Story:
    """The story of a branch without events, from its rows, or else from its record."""
    rows = [row for row in group.ppo if row.branch_index == branch.branch_index]
    row = main_sequence(rows) if rows else None
    answered = branch.final_answer is not None
    if row is None or not in_words(row):
        said = tuple(_steps(branch, row))
        return Story(said, row.tools if row else "[]", has_answer=answered, lost=Counter({NO_CONVERSATION: 1}))
    others = tuple(replace(_told(other), number=other.sequence or 0) for other in rows if other is not row)
    story = _told(row)
    failures = _failures(branch, story.said)
    said = tuple(each._replace(failed=each.message.tool_call_id in failures) for each in story.said)
    return replace(story, said=said, others=others, has_answer=answered, number=row.sequence or 0)


def _told(row: PpoRecord) -> Story:
    return Story(tuple(Said(each) for each in (*row.prompt, *row.completion)), row.tools, row.agent)


def _failures(branch: BranchRecord, said: Sequence[Said]) -> set[str]:
    """The ids of calls that failed, if the messages list the calls of the branch one by one."""
    calls = [call for each in said for call in each.message.tool_calls]
    known = [call for call in branch.tool_calls if call.paired]
    if [call.function.name for call in calls] != [call.name for call in known]:
        return set()
    return {call.id for call, told in zip(calls, known, strict=True) if told.error is not None}


# -- of steps ----------------------------------------------------------------------------------------------------------


def _steps(branch: BranchRecord, row: PpoRecord | None) -> Iterator[Said]:
    given = row.prompt if row is not None else (Message(role="user", content=branch.task),)
    yield from (Said(each) for each in given)
    asked = [call for call in branch.tool_calls if call.paired]
    for _, turn in groupby(asked, key=lambda call: call.turn):
        yield from _turn(list(turn))
    if branch.final_answer:
        answer = Message(role="assistant", content=branch.final_answer, trained=True)
        yield Said(answer, time=branch.last_event_ms)


def _turn(calls: list[BranchCall]) -> Iterator[Said]:
    ids = unique([call.call_id for call in calls])
    asked = tuple(
        ToolCall(id=call_id, function=FunctionCall(name=call.name, arguments=call.arguments))
        for call_id, call in zip(ids, calls, strict=True)
    )
    text = "\n\n".join(call.text for call in calls if call.text)
    turn = Message(role="assistant", content=text or None, tool_calls=asked, trained=True)
    yield Said(turn, time=calls[0].started_ms)
    for call_id, call in zip(ids, calls, strict=True):
        result = Message(role="tool", content=_output(call), tool_call_id=call_id, name=call.name)
        yield Said(result, failed=call.error is not None)


def _output(call: BranchCall) -> str:
    """The output of a tool; an error with the same text is not repeated."""
    once = (
        call.error is not None
        and call.output_summary is not None
        and call.error.message.startswith(call.output_summary)
    )
    return call.output_summary or "" if once else tool_content(call)


def unique(ids: Sequence[str]) -> list[str]:
    """A producer may repeat an id; inside a step each call needs its own."""
    return [call_id if call_id not in ids[:place] else f"{call_id}#{place}" for place, call_id in enumerate(ids)]
