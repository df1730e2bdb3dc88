"""TRL: conversational rows for its SFT, DPO, KTO, GRPO and reward trainers.

`tools` is JSON text, which the trainers parse; tool arguments are JSON text, as OpenAI writes them, or objects
(`--arguments object`). The ids lead back to the log; trainers ignore columns they do not know.

SFTTrainer with `assistant_only_loss` learns from every assistant message of `messages`; it has no mask for one of them. Of
`prompt` and `completion` it learns from the completion only, and with `assistant_only_loss` from its assistant messages only.
So a conversation in which the model said every assistant message is one row of `messages`, and one that holds given assistant
messages is a row of `prompt` and `completion` for each run of messages that the model said: all that comes before is its prompt.
The two shapes are in separate files. `--loss spans` writes all rows as prompt and completion; `--loss turns` writes one
for each message that the model said, which is exact with any chat template, and longer.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.chat import is_given, is_trained, messages, tool_text
from agents.formats.shape import MESSAGES, Column, Format, Group, Left, ListOf, Row, Speech, each_prompt
from agents.rewards.rewards import group_of
from agents.training.messages import has_content
from schemas.training import DpoRecord, Message, SftRecord, TrainingRecord

_IDS: dict[str, Column] = {"rollout_id": "text", "record_id": "text"}


def _ids(record: TrainingRecord) -> dict[str, Any]:
    return {"rollout_id": record.rollout_id, "record_id": record.record_id}


SPANS = "spans"
"""The part of `trl-sft` with prompts and completions."""

_SPEECH = Speech(objects=True)
_LEARNT_WHOLE = Speech(objects=True, given=False)
"""Of trainers that learn from all of a completion."""


def sft(group: Group) -> Iterator[Row | Left]:
    """{messages, tools}: the whole conversation; {prompt, completion, tools} if only part of it is trained on."""
    for record in group.sft:
        whole = group.style.loss == "messages" and not any(map(is_given, record.messages))
        if whole:
            shown = messages(record.messages, _SPEECH, group.style)
            yield Row({"messages": shown, **_tools(record), **_ids(record)}, (record,))
            continue
        spans = _spans(record.messages, alone=group.style.loss == "turns")
        if not spans:
            yield Left("empty_completion")
        for start, end in spans:
            yield Row(
                {
                    "prompt": messages(record.messages[:start], _SPEECH, group.style),
                    "completion": messages(record.messages[start:end], _SPEECH, group.style),
                    **_tools(record),
                    **_ids(record),
                },
                (record,),
                SPANS,
            )


def _spans(said: tuple[Message, ...], *, alone: bool) -> list[tuple[int, int]]:
    """The start and end of each run of messages that the model said; each message alone, or together until a given
    message.
    """
    spans: list[tuple[int, int]] = []
    given = True
    for place, each in enumerate(said):
        if is_given(each):
            given = True
        elif is_trained(each):
            start = place if given or alone else spans.pop()[0]
            spans.append((start, place + 1))
            given = False
    return spans


def _tools(record: SftRecord) -> dict[str, str]:
    return {"tools": tool_text(record.tools, record.messages)}


def dpo(group: Group) -> Iterator[Row | Left]:
    """{prompt, chosen, rejected, tools}: the shared beginning and both continuations, calls included."""
    for record in group.dpo:
        yield Row(
            {
                "prompt": messages(record.prompt, _SPEECH, group.style),
                "chosen": messages(record.chosen, _SPEECH, group.style),
                "rejected": messages(record.rejected, _SPEECH, group.style),
                "tools": _pair_tools(record),
                "margin": record.margin,
                "basis": record.basis,
                **_ids(record),
            },
            (record,),
        )


def reward(group: Group) -> Iterator[Row | Left]:
    """{chosen, rejected, margin}: both conversations from the beginning; the reward trainer wants no prompt column."""
    for record in group.dpo:
        yield Row(
            {
                "chosen": messages((*record.prompt, *record.chosen), _SPEECH, group.style),
                "rejected": messages((*record.prompt, *record.rejected), _SPEECH, group.style),
                "tools": _pair_tools(record),
                "margin": record.margin,
                **_ids(record),
            },
            (record,),
        )


def kto(group: Group) -> Iterator[Row | Left]:
    """{prompt, completion, label}: true for a branch that passes, false for one that fails; other branches have no
    label.
    """
    for record in group.ppo:
        status = group.status(record.branch_index)
        if status not in ("pass", "fail"):
            yield Left("no_label")
        elif not has_content(record.completion):
            yield Left("empty_completion")
        else:
            yield Row(
                {
                    "prompt": messages(record.prompt, _SPEECH, group.style),
                    "completion": messages(record.completion, _SPEECH, group.style),
                    "label": status == "pass",
                    "tools": tool_text(record.tools, record.completion),
                    **_ids(record),
                },
                (record,),
            )


def grpo(group: Group) -> Iterator[Row | Left]:
    """{prompt, ...}: one row for each rollout, with the group that was sampled, its rewards and advantages.

    The trainer samples its own completions for `prompt` and hands the other columns to the reward function; offline
    trainers read the group itself. If branches have tasks of their own, each prompt is a group. Its statistics are
    those of the rows in it. A branch is one member, by its main sequence. A group with equal rewards gives no gradient
    and is left out.
    """
    yield from each_prompt(group, _sampled)


def _sampled(group: Group) -> Iterator[Row | Left]:
    rows = [row for row in group.ppo if has_content(row.completion)]
    if not rows:
        if group.ppo:
            yield Left("empty_completion")
        return
    if len({row.reward for row in rows}) < 2:
        yield Left("no_reward_spread")
        return
    first, stats = rows[0], group_of([row.reward for row in rows])
    yield Row(
        {
            "prompt": messages(first.prompt, _SPEECH, group.style),
            "tools": tool_text(first.tools, [said for row in rows for said in row.completion]),
            "task": first.task,
            "reference_answer": group.reference_answer(),
            # Not `completions`: so the trainer calls its own, and a column of that name makes it fail.
            "sampled": [messages(row.completion, _SPEECH, group.style) for row in rows],
            "rewards": [row.reward for row in rows],
            "advantages": [stats.advantage(row.reward) for row in rows],
            "branches": [row.branch_index for row in rows],
            "group_mean": stats.mean,
            "group_std": stats.std,
            "rollout_id": group.rollout_id,
        },
        tuple(rows),
    )


def _pair_tools(record: DpoRecord) -> str:
    return tool_text(record.tools, (*record.prompt, *record.chosen, *record.rejected))


FORMATS = (
    Format(
        "trl-sft", "TRL SFTTrainer: messages and tools", frozenset({"sft"}), sft,
        {
            "": {"messages": MESSAGES, "tools": "text", **_IDS},
            SPANS: {"prompt": MESSAGES, "completion": MESSAGES, "tools": "text", **_IDS},
        },
        speech=_SPEECH,
    ),
    Format(
        "trl-dpo", "TRL DPOTrainer: prompt, chosen and rejected messages", frozenset({"dpo"}), dpo,
        {"": {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "tools": "text", "margin": "real", "basis": "text", **_IDS}},
        speech=_LEARNT_WHOLE,
    ),
    Format(
        "trl-kto", "TRL KTOTrainer: prompt and completion messages with a label", frozenset({"ppo"}), kto,
        {"": {"prompt": MESSAGES, "completion": MESSAGES, "label": "truth", "tools": "text", **_IDS}},
        speech=_LEARNT_WHOLE,
    ),
    Format(
        "trl-grpo", "TRL GRPOTrainer: a prompt for each rollout, with its group and rewards", frozenset({"ppo"}), grpo,
        {
            "": {
                "prompt": MESSAGES, "tools": "text", "task": "text", "reference_answer": "text",
                "sampled": ListOf(MESSAGES), "rewards": ListOf("real"), "advantages": ListOf("real"),
                "branches": ListOf("whole"), "group_mean": "real", "group_std": "real", "rollout_id": "text",
            }
        },
        speech=_SPEECH,
    ),
    Format(
        "trl-reward", "TRL RewardTrainer: chosen and rejected conversations with a margin", frozenset({"dpo"}), reward,
        {"": {"chosen": MESSAGES, "rejected": MESSAGES, "tools": "text", "margin": "real", **_IDS}},
        speech=_SPEECH,
    ),
)  # fmt: skip
