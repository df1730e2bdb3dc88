"""Which pairs of branches are asked about: a function of the settled rollout alone.

Only branches of one tier are compared. All pairs up to six branches; above that each branch with the next three in circular
order of branch_index. Never more calls than the limit, whole pairs at a time in schedule order.
"""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.emission import JudgeConfig
from schemas.rankings import ObjectiveStatus

TIERS: tuple[ObjectiveStatus, ...] = ("pass", "not_required", "fail")
"""Tiers in the order of the ranking; unknown branches are not judged."""

ALL_PAIRS_UP_TO = 6
"""Branches of a tier of which every pair is asked."""

NEIGHBOURS = 3
"""In larger tiers each branch meets this many of those after it."""


class Pair(NamedTuple):
    """Two branches to compare, a < b."""

    a: int
    b: int


def schedule(statuses: Mapping[int, ObjectiveStatus], judge: JudgeConfig) -> list[Pair]:
    """The pairs to ask about, in order; empty when nobody is asked."""
    if judge.kind == "none":
        return []
    pairs = [
        pair
        for tier in TIERS
        for pair in tier_pairs(sorted(index for index, status in statuses.items() if status == tier))
    ]
    return pairs[: judge.max_judge_calls // (2 * judge.samples)]


def tier_pairs(members: list[int]) -> list[Pair]:
    """The pairs of one tier."""
    n = len(members)
    if n <= ALL_PAIRS_UP_TO:
        return [Pair(a, b) for position, a in enumerate(members) for b in members[position + 1 :]]
    found = {
        Pair(*sorted((members[position], members[(position + step) % n])))
        for position in range(n) for step in range(1, NEIGHBOURS + 1)
    }  # fmt: skip
    return sorted(found)
