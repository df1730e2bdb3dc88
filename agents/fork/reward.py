"""Reward files of Harbor's layout: `reward.json` or `reward.txt`, written by a task's tests. They are read as untrusted.

1 is a pass, from 0 to below 1 is a fail: partly done is not done. Other scales are not supported.
"""

import json
from math import isfinite
from typing import Any, Literal

from agents.workspace.files import Files

MAX_REWARD = 64 * 1024

Rewarded = Literal["all", "less", "other"]
"""The full reward (1), less than that (0 to below 1), or a number of another scale."""

_WORST: tuple[Rewarded, ...] = ("less", "other", "all")


def read_reward(reports: Files) -> Rewarded | None:
    """Read the reward; None if there is none, or if it cannot be read. If there are several, the entry `reward` counts,
    else the worst.
    """
    for name, read in (("reward.json", _json), ("reward.txt", _text)):
        file = reports.get(name)
        if file is not None:
            found = [_rewarded(value) for value in read(file.content[:MAX_REWARD])]
            return None if None in found else next((each for each in _WORST if each in found), None)
    return None


def _json(content: bytes) -> list[Any]:
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return []
    if isinstance(said, dict):
        return [said["reward"]] if "reward" in said else list(said.values())
    return [said]


def _text(content: bytes) -> list[Any]:
    try:
        return [float(content)]
    except ValueError:
        return []


def _rewarded(value: Any) -> Rewarded | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not isfinite(value):  # a very large integer would overflow here
        return None
    if value == 1:
        return "all"
    return "less" if 0 <= value < 1 else "other"
