"""verl: one prompt for each rollout, or for each task where branches have their own. Always Parquet.

No text of a branch is used as ground truth: a reward function gets the digest of the task, which names what to verify,
the verifiers that judged it, and the reward of every sampled branch. A branch is one member, whatever its number of
sequences. `prompt` has only roles and texts, as verl reads it: a prompt with calls or results is left out.
"""

from collections.abc import Iterator
from typing import Any

from agents.formats.chat import message, tool_text
from agents.formats.shape import Format, Group, Left, ListOf, Row, Speech, Struct, each_prompt
from agents.formats.streams import reader_columns, stream_columns
from agents.rewards.rewards import group_of
from schemas.training import Message

_SPEECH = Speech(reasoning=False)


def prompts(group: Group) -> Iterator[Row | Left]:
    """{data_source, prompt, ability, reward_model{style, ground_truth}, extra_info}."""
    yield from each_prompt(group, _prompt)


def _prompt(group: Group) -> Iterator[Row | Left]:
    if not group.ppo:
        return
    first = group.ppo[0]
    if any(said.tool_calls or said.role == "tool" for said in first.prompt):
        yield from [Left("calls_in_prompt")] * len(group.ppo)
        return
    stats = group_of([row.reward for row in group.ppo])
    beside = reader_columns(group, first.task, [_said(said) for said in first.prompt])
    yield Row(
        {
            **beside,
            "extra_info": {
                **beside["extra_info"],
                "rollout_id": group.rollout_id,
                "task": first.task,
                "tools": tool_text(first.tools),
                "verifiers": group.verifiers(),
                "branches": [row.branch_index for row in group.ppo],
                "rewards": [row.reward for row in group.ppo],
                "advantages": [stats.advantage(row.reward) for row in group.ppo],
                "group_mean": stats.mean,
                "group_std": stats.std,
                "group_size": stats.size,
            },
            **_tokens(group),
        },
        group.ppo,
    )


def _tokens(group: Group) -> dict[str, Any]:
    """The streams of the main sequences, for each its branch; null where no branch has any."""
    told = [(row, each) for row in group.ppo for each in group.streams(row)]
    if not told:
        return dict.fromkeys(TOKENS)
    columns = [stream_columns(each) for _, each in told]
    named = {name: [each[of] for each in columns] for name, of in TOKENS.items() if of is not None}
    return {"stream_branches": [row.branch_index for row, _ in told], **named}


TOKENS = {
    "stream_branches": None, "prompt_ids": "prompt_ids", "response_ids": "response_ids", "response_mask": "loss_mask",
    "rollout_log_probs": "logprobs",
}  # fmt: skip
"""Columns of token streams, under verl's names for them in a batch, and under those of tokens-parquet."""


def _said(said: Message) -> dict[str, str]:
    shown = message(said, _SPEECH)
    return {"role": shown["role"], "content": shown["content"] or ""}


FORMATS = (
    Format(
        "verl-parquet", "verl: prompts with the digest of their task, verifiers and rewards", frozenset({"ppo"}), prompts,
        {
            "": {
                "data_source": "text",
                "prompt": ListOf(Struct({"role": "text", "content": "text"})),
                "ability": "text",
                "reward_model": Struct({"style": "text", "ground_truth": "text"}),
                "extra_info": Struct(
                    {
                        "split": "text", "index": "whole", "uid": "text", "rollout_id": "text", "task": "text", "tools": "text",
                        "verifiers": ListOf("text"), "branches": ListOf("whole"), "rewards": ListOf("real"),
                        "advantages": ListOf("real"), "group_mean": "real", "group_std": "real", "group_size": "whole",
                    }
                ),
                "stream_branches": ListOf("whole"),
                "prompt_ids": ListOf(ListOf("whole")),
                "response_ids": ListOf(ListOf("whole")),
                "response_mask": ListOf(ListOf("whole")),
                "rollout_log_probs": ListOf(ListOf("real")),
            }
        },
        ("parquet",),
        speech=_SPEECH,
    ),
)  # fmt: skip
