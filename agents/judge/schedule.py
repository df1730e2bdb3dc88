"""The questions to a judge: a function of the settled rollout alone.

Only branches of one tier are compared. All pairs up to six branches; above that each branch with the next three in circular
order of branch_index. Scores are asked for one branch at a time. Never more calls than the limit: pairs first, whole
pairs and whole branches at a time in schedule order. Unknown branches are not judged.
"""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.emission import JudgeConfig
from schemas.rankings import ObjectiveStatus

TIERS: tuple[ObjectiveStatus, ...] = ("pass", "not_required", "fail")
"""Tiers in the order of the ranking; unknown branches are not judged."""

ALL_PAIRS_UP_TO = 6
"""Largest tier in which every pair is asked."""

NEIGHBOURS = 3
"""In larger tiers each branch is compared with this many of the next ones."""


class Pair(NamedTuple):
    """Two branches to compare, a < b."""

    a: int
    b: int


class Schedule(NamedTuple):
    """The questions, in order."""

    pairs: tuple[Pair, ...] = ()
    """Compared, `samples` times in both orders."""
    scored: tuple[int, ...] = ()
    """Branches scored by themselves, `scalar_samples` times."""

    @property
    def asks(self) -> bool:
        """Whether there are any questions."""
        return bool(self.pairs or self.scored)

    def calls(self, judge: JudgeConfig) -> int:
        """How many calls it takes if no two texts are equal."""
        return 2 * judge.samples * len(self.pairs) + judge.scalar_samples * len(self.scored)


def schedule(statuses: Mapping[int, ObjectiveStatus], judge: JudgeConfig) -> Schedule:
    """The questions about these branches; empty without a judge."""
    if judge.kind == "none":
        return Schedule()
    tiers = [sorted(index for index, status in statuses.items() if status == tier) for tier in TIERS]
    pairs: list[Pair] = []
    if judge.mode != "scalar":
        pairs = [pair for tier in tiers for pair in tier_pairs(tier)][: judge.max_judge_calls // (2 * judge.samples)]
    scored: list[int] = []
    if judge.mode != "pairwise":
        left = judge.max_judge_calls - 2 * judge.samples * len(pairs)
        scored = [index for tier in tiers for index in tier][: left // judge.scalar_samples]
    return Schedule(tuple(pairs), tuple(scored))


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
