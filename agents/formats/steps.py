"""Branches step by step: transitions for reinforcement learning, and steps with labels for process supervision.

Only known values are written. A step has a reward where the branch ends, because verdicts are about the whole; a step
has a label when its tools answered (an error is false) or when it is the answer that verdicts judged.
"""

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from agents.formats.chat import arguments, in_words, is_trained, message, messages, tool_text
from agents.formats.shape import MESSAGES, Format, Group, Left, ListOf, Row, Speech, Struct
from agents.training.messages import has_content, is_blank
from schemas.branches import BranchCall, BranchRecord
from schemas.jsontext import compact
from schemas.training import Message, PpoRecord

_SPEECH = Speech(objects=True)


def transitions(group: Group) -> Iterator[Row | Left]:
    """{observation, action, next_observation, reward, components, done}: one row for each turn of the model.

    `observation` is everything that the model saw before; `next_observation` is what followed its action: results,
    people's words, and given assistant messages. `reward` is null before the last step, and has no components there:
    unknown.
    """
    for record in group.ppo:
        turns = list(_turns(record.completion))
        if not turns or not has_content(record.completion):
            yield Left("empty_completion")
            continue
        seen = list(record.prompt)
        for step, (action, answers) in enumerate(turns):
            last = step == len(turns) - 1
            yield Row(
                {
                    "observation": messages(seen, _SPEECH, group.style),
                    "action": [message(action, _SPEECH, group.style)],
                    "next_observation": messages(answers, _SPEECH, group.style),
                    "reward": record.reward if last else None,
                    "components": [each.plain() for each in record.components] if last else [],
                    "done": last,
                    "step": step,
                    "tools": tool_text(record.tools, record.completion),
                    "branch_index": record.branch_index,
                    "sequence": record.sequence,
                    "rollout_id": record.rollout_id,
                    "record_id": record.record_id,
                },
                (record,),
            )
            seen += [action, *answers]


def _turns(completion: tuple[Message, ...]) -> Iterator[tuple[Message, list[Message]]]:
    """The model's actions, each with its result."""
    starts = [place for place, said in enumerate(completion) if is_trained(said)]
    for start, end in pairwise([*starts, len(completion)]):
        yield completion[start], list(completion[start + 1 : end])


def stepwise(group: Group) -> Iterator[Row | Left]:
    """{prompt, completions, labels}: the steps of a branch as text, each with whether it went well."""
    branches = {branch.branch_index: branch for branch in group.branches}
    yield from [Left("other_sequence")] * (len(group.ppo) - len(group.by_branch().ppo))
    for record in group.by_branch().ppo:
        branch = branches.get(record.branch_index)
        if branch is None:
            continue
        steps = _labelled(branch, group.status(record.branch_index))
        if in_words(record) and not _covered(record, branch):
            yield Left("unknown_step")
        elif not steps:
            yield Left("empty_completion")
        elif any(label is None for _, label in steps):
            yield Left("unknown_step")
        else:
            yield Row(_stepwise_row(record, steps), (branch, record))


def _covered(record: PpoRecord, branch: BranchRecord) -> bool:
    """Whether a branch's events match its conversation: only events record whether a call failed."""
    asked = [call.function for said in record.completion for call in said.tool_calls]
    happened = [call for call in branch.tool_calls if call.paired]
    return [(call.name, arguments(call.arguments)) for call in asked] == [
        (call.name, arguments(call.arguments)) for call in happened
    ]


def _stepwise_row(record: PpoRecord, steps: list[tuple[str, bool | None]]) -> dict[str, Any]:
    return {
        "prompt": "\n\n".join(said.content for said in record.prompt if said.content),
        "completions": [text for text, _ in steps],
        "labels": [label for _, label in steps],
        "branch_index": record.branch_index,
        "rollout_id": record.rollout_id,
        "record_id": record.record_id,
    }


def _labelled(branch: BranchRecord, status: str) -> list[tuple[str, bool | None]]:
    asked = [call for call in branch.tool_calls if call.paired]
    steps = [_step(list(turn)) for _, turn in groupby(asked, key=lambda call: call.turn)]
    if branch.final_answer and not is_blank(branch.final_answer):
        steps.append((branch.final_answer, {"pass": True, "fail": False}.get(status)))
    return steps


def _step(calls: list[BranchCall]) -> tuple[str, bool | None]:
    """A turn as text; false when a call of it failed, None while one was never answered."""
    said = [call.text for call in calls if call.text]
    called = [f'{{"name":{compact(call.name)},"arguments":{call.arguments}}}' for call in calls]
    failed = any(call.error is not None for call in calls)
    answered = all(call.output_digest is not None for call in calls)
    return "\n".join((*said, *called)), False if failed else True if answered else None


FORMATS = (
    Format(
        "rl-transitions", "Transitions of reinforcement learning: one row for each turn of the model", frozenset({"ppo"}),
        transitions,
        {
            "": {
                "observation": MESSAGES, "action": MESSAGES, "next_observation": MESSAGES, "reward": "real",
                "components": ListOf(Struct({"key": "text", "value": "real", "weight": "real"})), "done": "truth",
                "step": "whole", "tools": "text", "branch_index": "whole",
                "sequence": "whole", "rollout_id": "text", "record_id": "text",
            }
        },
        speech=_SPEECH,
    ),
    Format(
        "trl-stepwise", "TRL stepwise supervision: steps of a branch with labels", frozenset({"ppo", "branches"}), stepwise,
        {
            "": {
                "prompt": "text", "completions": ListOf("text"), "labels": ListOf("truth"),
                "branch_index": "whole", "rollout_id": "text", "record_id": "text",
            }
        },
        speech=Speech(reasoning=False),
    ),
)  # fmt: skip
