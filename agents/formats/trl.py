"""TRL: conversational rows for its SFT, DPO, KTO, GRPO and reward trainers.

`tools` is JSON text, which the trainers parse; tool arguments are JSON text, as OpenAI writes them. The ids lead back to
the log; trainers ignore columns they do not know.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.chat import messages, tool_text
from agents.formats.shape import MESSAGES, Column, Format, Group, Left, ListOf, Row
from agents.rewards.rewards import group_of
from agents.training.messages import has_content
from schemas.training import DpoRecord, TrainingRecord

_IDS: dict[str, Column] = {"rollout_id": "text", "record_id": "text"}


def _ids(record: TrainingRecord) -> dict[str, Any]:
    return {"rollout_id": record.rollout_id, "record_id": record.record_id}


def sft(group: Group) -> Iterator[Row | Left]:
    """{messages, tools}: the whole conversation."""
    for record in group.sft:
        tools = tool_text(record.tools, record.messages)
        yield Row({"messages": messages(record.messages), "tools": tools, **_ids(record)}, (record,))


def dpo(group: Group) -> Iterator[Row | Left]:
    """{prompt, chosen, rejected, tools}: the shared beginning and both continuations, calls included."""
    for record in group.dpo:
        yield Row(
            {
                "prompt": messages(record.prompt),
                "chosen": messages(record.chosen),
                "rejected": messages(record.rejected),
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
                "chosen": messages((*record.prompt, *record.chosen)),
                "rejected": messages((*record.prompt, *record.rejected)),
                "tools": _pair_tools(record),
                "margin": record.margin,
                **_ids(record),
            },
            (record,),
        )


def kto(group: Group) -> Iterator[Row | Left]:
    """{prompt, completion, label}: true for a branch that passes, false for one that fails; nothing else has a label."""
    for record in group.ppo:
        status = group.status(record.branch_index)
        if status not in ("pass", "fail"):
            yield Left("no_label")
        elif not has_content(record.completion):
            yield Left("empty_completion")
        else:
            yield Row(
                {
                    "prompt": messages(record.prompt),
                    "completion": messages(record.completion),
                    "label": status == "pass",
                    "tools": tool_text(record.tools, record.completion),
                    **_ids(record),
                },
                (record,),
            )


def grpo(group: Group) -> Iterator[Row | Left]:
    """{prompt, ...}: one row for each rollout, with the group that was sampled, its rewards and advantages.

    The trainer samples its own completions for `prompt` and hands the other columns to the reward function; offline
    trainers read the group itself. Where branches have tasks of their own, each prompt is a group. Its statistics are those of
    the rows that are there. A group without a spread of rewards teaches nothing and is left out.
    """
    for part in group.by_prompt():
        yield from _sampled(part)


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
            "prompt": messages(first.prompt),
            "tools": tool_text(first.tools, [said for row in rows for said in row.completion]),
            "task": first.task,
            "reference_answer": group.reference_answer(),
            # Not `completions`: so the trainer calls its own, and a column of that name makes it fail.
            "sampled": [messages(row.completion) for row in rows],
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
        {"": {"messages": MESSAGES, "tools": "text", **_IDS}},
    ),
    Format(
        "trl-dpo", "TRL DPOTrainer: prompt, chosen and rejected messages", frozenset({"dpo"}), dpo,
        {"": {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "tools": "text", "margin": "real", "basis": "text", **_IDS}},
    ),
    Format(
        "trl-kto", "TRL KTOTrainer: prompt and completion messages with a label", frozenset({"ppo"}), kto,
        {"": {"prompt": MESSAGES, "completion": MESSAGES, "label": "truth", "tools": "text", **_IDS}},
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
    ),
    Format(
        "trl-reward", "TRL RewardTrainer: chosen and rejected conversations with a margin", frozenset({"dpo"}), reward,
        {"": {"chosen": MESSAGES, "rejected": MESSAGES, "tools": "text", "margin": "real", **_IDS}},
    ),
)  # fmt: skip
