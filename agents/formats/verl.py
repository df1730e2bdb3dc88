"""verl: one prompt for each rollout, or for each task where branches have their own. Always Parquet.

No branch's prose passes for a ground truth: a reward function gets the digest of the task, which names what to verify, the
verifiers that judged it, and the reward of every branch that was sampled.
"""

from collections.abc import Iterator
from hashlib import sha256

from agents.formats.chat import tool_text
from agents.formats.shape import Format, Group, Left, ListOf, Row, Struct
from agents.rewards.rewards import group_of

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
    first = group.ppo[0]
    stats = group_of([row.reward for row in group.ppo])
    asked = group.rollout_id if first.task == group.ranking.task else f"{group.rollout_id}/{first.task}"
    yield Row(
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": said.role, "content": said.content or ""} for said in first.prompt],
            "ability": ABILITY,
            "reward_model": {"style": "rule", "ground_truth": sha256(first.task.encode()).hexdigest()},
            "extra_info": {
                "split": group.split,
                # The same number for the same prompt in every export, small enough for any reader of integers.
                "index": int(sha256(asked.encode()).hexdigest()[:12], 16),
                "rollout_id": group.rollout_id,
                "task": first.task,
                "tools": tool_text(first.tools),
                "verifiers": group.verifiers(),
                "branches": [row.branch_index for row in group.ppo],
                "rewards": [row.reward for row in group.ppo],
                "group_mean": stats.mean,
                "group_std": stats.std,
                "group_size": stats.size,
            },
        },
        group.ppo,
    )


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
                        "split": "text", "index": "whole", "rollout_id": "text", "task": "text", "tools": "text",
                        "verifiers": ListOf("text"), "branches": ListOf("whole"), "rewards": ListOf("real"),
                        "group_mean": "real", "group_std": "real", "group_size": "whole",
                    }
                ),
            }
        },
        ("parquet",),
    ),
)  # fmt: skip
