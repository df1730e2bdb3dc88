"""Token streams as columns: the tokens before the first sampled one, and everything from it on with its mask."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from agents.formats.shape import Group
from schemas.jsontext import compact
from schemas.training import TokenStream

DATA_SOURCE = "braidstream"
"""The field by which verl chooses the reward function, and SkyRL the environment."""

ABILITY = "agent"


def group_key(group: Group, task: str) -> str:
    """The name of the group of samples of one task."""
    return group.rollout_id if task == group.ranking.task else f"{group.rollout_id}/{task}"


def reader_columns(group: Group, task: str, prompt: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Return the columns that verl's and SkyRL's readers of prompts want; `prompt` has roles and texts."""
    digest = sha256(group_key(group, task).encode()).hexdigest()
    return {
        "data_source": DATA_SOURCE,
        "prompt": prompt,
        "ability": ABILITY,
        "reward_model": {
            "style": "rule",
            "ground_truth": compact({"task": sha256(task.encode()).hexdigest(), "verifiers": group.verifiers()}),
        },
        # The same number for the same prompt in every export, small enough for any reader of integers.
        "extra_info": {"split": group.split, "index": int(digest[:12], 16), "uid": digest[:32]},
    }


def stream_columns(stream: TokenStream) -> dict[str, Any]:
    """Return prompt_ids, response_ids, loss_mask and logprobs; the last two have a place for each id of the response."""
    ids, mask = [*stream.token_ids], [*stream.loss_mask]
    first = mask.index(1) if 1 in mask else len(mask)
    known = iter(stream.logprobs)
    logprobs = [next(known) if bit else None for bit in mask[first:]] if stream.logprobs else None
    return {
        "prompt_ids": ids[:first], "response_ids": ids[first:], "loss_mask": mask[first:], "logprobs": logprobs,
    }  # fmt: skip


def versions_of(stream: TokenStream) -> list[str | None]:
    """The versions of the policy that sampled a stream, in order, each once."""
    return [*dict.fromkeys(each.version for each in stream.policy_versions)]
