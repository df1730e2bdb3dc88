"""verl: one prompt for each rollout, or for each task where branches have their own, with the answer that a rule-based reward
compares with. Always Parquet.
"""

from collections.abc import Iterator
from hashlib import sha256

from agents.training.formats.chat import tool_text
from agents.training.formats.shape import Format, Group, Left, ListOf, Row, Struct

DATA_SOURCE = "braidstream"
"""What verl chooses the reward function by."""

ABILITY = "agent"


def prompts(group: Group) -> Iterator[Row | Left]:
    """{data_source, prompt, ability, reward_model{style, ground_truth}, extra_info}."""
    for part in group.by_prompt():
        yield from _prompt(part)


def _prompt(group: Group) -> Iterator[Row | Left]:
    if not group.ppo:
        return
    answer = group.reference_answer()
    if answer is None:
        yield Left("no_ground_truth")
        return
    first = group.ppo[0]
    asked = group.rollout_id if first.task == group.ranking.task else f"{group.rollout_id}/{first.task}"
    yield Row(
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": said.role, "content": said.content or ""} for said in first.prompt],
            "ability": ABILITY,
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {
                "split": group.split,
                # The same number for the same prompt in every export, small enough for any reader of integers.
                "index": int(sha256(asked.encode()).hexdigest()[:12], 16),
                "rollout_id": group.rollout_id,
                "task": first.task,
                "tools": tool_text(first.tools),
                "group_mean": first.group_mean,
                "group_std": first.group_std,
                "group_size": first.group_size,
            },
        },
        group.ppo,
    )


FORMATS = (
    Format(
        "verl-parquet", "verl: prompts with a ground truth", frozenset({"ppo"}), prompts,
        {
            "": {
                "data_source": "text",
                "prompt": ListOf(Struct({"role": "text", "content": "text"})),
                "ability": "text",
                "reward_model": Struct({"style": "text", "ground_truth": "text"}),
                "extra_info": Struct(
                    {
                        "split": "text", "index": "whole", "rollout_id": "text", "task": "text", "tools": "text",
                        "group_mean": "real", "group_std": "real", "group_size": "whole",
                    }
                ),
            }
        },
        ("parquet",),
    ),
)  # fmt: skip
