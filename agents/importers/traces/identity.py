"""Ids of imported rollouts and branches, computed from content."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from agents.evidence.canonical import canonical_bytes

MAX_TRIAL = 100_000


def rollout_id(format_name: str, run: str | None, task_key: Any) -> str:
    """Return the id of a rollout. Without a run (--join-runs) the same task of several runs is one rollout."""
    digest = sha256(canonical_bytes([format_name, run, task_key], big_integers="exact")).hexdigest()
    return f"{format_name}-{digest[:20]}"


class Place(NamedTuple):
    """The place of an episode in its rollout."""

    branch_index: int
    attempt: int


def places(trials: Sequence[Any]) -> list[Place]:
    """Return the places of episodes with these trials, in order of appearance.

    Whole numbers from 0 or 1 without gaps are the branch numbers. Otherwise the order of first appearance decides. A
    repeated trial is the next attempt of its branch. An episode without a trial is a branch of its own.
    """
    names: list[tuple[int, Any]] = [
        (number, None) if trial is None else (-1, trial) for number, trial in enumerate(trials)
    ]
    found = list(dict.fromkeys(names))
    whole = sorted(int(trial) for _, trial in found if _is_whole(trial))
    first = whole[0] if whole else -1
    if len(whole) == len(found) and first in (0, 1) and whole[-1] - first == len(whole) - 1:
        index = {name: int(name[1]) - first for name in found}
    else:
        index = {name: number for number, name in enumerate(found)}
    attempts: dict[Any, int] = {}
    placed = []
    for name in names:
        attempt = attempts[name] = attempts.get(name, -1) + 1
        placed.append(Place(index[name], attempt))
    return placed


def _is_whole(trial: Any) -> bool:
    return isinstance(trial, int) and not isinstance(trial, bool) and 0 <= trial <= MAX_TRIAL
