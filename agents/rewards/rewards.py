"""Rewards from verdicts: the verifiable reward of a branch, and the group statistics that GRPO needs.

An unknown is not a zero: a branch whose outcome nobody knows has no reward, and touches no statistic.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agents.verdicts.meaning import Verdict, hack_signals, objective_score
from schemas.emission import RewardsConfig
from schemas.numbers import nine
from schemas.rankings import ObjectiveStatus, RewardComponent
from schemas.verdicts import BuildVerdict


class Reward(NamedTuple):
    """A reward in [0, 1], with what it is made of."""

    value: float
    components: tuple[RewardComponent, ...]


class Group(NamedTuple):
    """Statistics over the members that have a reward."""

    size: int
    mean: float | None
    std: float | None

    def advantage(self, reward: float) -> float | None:
        """How far above its group a reward is, in standard deviations; 0 in a group of equals, null in a group of one."""
        if self.mean is None or self.std is None:
            return None
        return nine((reward - self.mean) / self.std) if self.std > 0 else 0.0


def reward_of(
    status: ObjectiveStatus, verdicts: Mapping[str, Verdict], judge_score: float | None, config: RewardsConfig
) -> Reward | None:
    """The reward of a branch; None when nothing is known."""
    if status == "not_required":
        if judge_score is None:
            return None
        value = nine(judge_score / 10)
        return Reward(value, (RewardComponent(key="judge", value=value, weight=1.0),))
    score = objective_score(status)
    if score is None:
        return None
    build = verdicts.get("build")
    passed, coverage = score, None
    if isinstance(build, BuildVerdict):
        coverage = build.coverage
        if build.tests is not None and build.tests.total > 0:
            passed = build.tests.passed / build.tests.total
    hacked = 1.0 if hack_signals(dict(verdicts)) else 0.0
    raw = config.pass_weight * passed - config.hack_penalty * hacked + config.coverage_bonus * (coverage or 0.0)
    return Reward(
        nine(min(1.0, max(0.0, raw))),
        (
            RewardComponent(key="pass_rate", value=nine(passed), weight=config.pass_weight),
            RewardComponent(key="hacked", value=hacked, weight=-config.hack_penalty),
            RewardComponent(
                key="coverage", value=None if coverage is None else nine(coverage), weight=config.coverage_bonus
            ),
        ),
    )


def group_of(rewards: Sequence[float]) -> Group:
    """Mean and sample standard deviation of the rewards that are there."""
    n = len(rewards)
    if n == 0:
        return Group(0, None, None)
    mean = math.fsum(rewards) / n
    if n == 1:
        return Group(1, nine(mean), None)
    spread = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (n - 1))
    return Group(n, nine(mean), nine(spread))
