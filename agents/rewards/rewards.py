"""Rewards from verdicts: the verifiable reward of a branch, and the group statistics that GRPO needs.

An unknown is not a zero: a branch whose outcome is unknown has no reward, and touches no statistic. Every known pass is above
every known fail. The rules of emission version 1, under which that was not true, are kept for its logs.
"""

from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from typing import Final, final

from agents.rules.emission_rules import Rules
from agents.verdicts.meaning import CONFIRMED, Verdict, hard_share, is_final, objective_score
from schemas.codec.maker import unchecked
from schemas.emission import EmissionConfig, RewardsConfig, Weight
from schemas.numbers import nine
from schemas.rankings import ObjectiveStatus, RewardComponent
from schemas.verdicts import BuildVerdict, TestCounts

_component: Final = unchecked(RewardComponent)


@final
class Reward:
    """A reward, with its components."""

    __slots__ = ("components", "coverage", "value")

    def __init__(self, value: float, components: tuple[RewardComponent, ...], coverage: float | None = None) -> None:
        self.value = value
        self.components = components
        self.coverage = coverage
        """Coverage of a passing branch, if known: a bonus, if it is known for every pass of the group."""


ALMOST = 0.999_999
"""The highest base of a failing branch. Closer to 1, rounding to nine digits could make it equal to a passing one."""


@final
class JudgedScores:
    """The judge's score of a branch, 0..10; None without one."""

    __slots__ = ("judge_scalar", "judge_score")

    def __init__(self, judge_score: float | None = None, judge_scalar: float | None = None) -> None:
        self.judge_score = judge_score
        self.judge_scalar = judge_scalar


@final
class Group:
    """Statistics over the members that have a reward."""

    __slots__ = ("mean", "size", "std")

    def __init__(self, size: int, mean: float | None, std: float | None) -> None:
        self.size = size
        self.mean = mean
        self.std = std

    def advantage(self, reward: float) -> float | None:
        """How far above its group a reward is, in standard deviations; 0 in a group of equals, null in a group of one."""
        if self.mean is None or self.std is None:
            return None
        return nine((reward - self.mean) / self.std) if self.std > 0 else 0.0


def reward_of(
    status: ObjectiveStatus,
    verdicts: Mapping[str, Verdict],
    judged: JudgedScores,
    config: EmissionConfig,
    flags: Sequence[str],
    rules: Rules,
) -> Reward | None:
    """The reward of a branch, without the bonus that depends on its group; None if nothing is known."""
    if status == "not_required":
        return _judged_reward(judged, config.ranking.weights)
    hacked = 1.0 if any(flag.startswith(CONFIRMED) for flag in flags) else 0.0
    if rules.passes_earn_most:
        return _verified_reward(status, verdicts, config.rewards, hacked)
    return _verified_reward_of_version_1(status, verdicts, config.rewards, hacked)


def _judged_reward(judged: JudgedScores, weights: Sequence[Weight]) -> Reward | None:
    """The judge's scores by their configured weights, if nothing is verified; judge_score alone if no weights are
    configured.
    """
    parts = {"judge": judged.judge_score, "judge_scalar": judged.judge_scalar}
    shares = {name: fsum(each.weight for each in weights if each.component == name) for name in parts}
    if shares["judge_scalar"] <= 0:
        shares = {"judge": 1.0}
    components = tuple(
        _component(key=name, value=_tenth(parts[name]), weight=share) for name, share in shares.items() if share > 0
    )
    known = [(part.weight, part.value) for part in components if part.value is not None]
    if not known:
        return None
    return Reward(nine(fsum(share * value for share, value in known) / fsum(share for share, _ in known)), components)


def _tenth(score: float | None) -> float | None:
    return None if score is None else nine(score / 10)


def _verified_reward(
    status: ObjectiveStatus, verdicts: Mapping[str, Verdict], config: RewardsConfig, hacked: float
) -> Reward | None:
    """1 for a pass; for a fail the share of tests that passed, which is below 1. Both less the penalty of a hack."""
    score = objective_score(status)
    if score is None:
        return None
    build = _known_build(verdicts)
    base = score if score == 1.0 or build is None else _share_passed(build.tests)
    if score != 1.0 and build is None and (share := hard_share(verdicts)) is not None:
        base = min(share, ALMOST)
    pass_weight, hack_penalty = config.pass_weight, config.hack_penalty
    raw = pass_weight * base - hack_penalty * hacked
    components = (
        _component(key="base", value=nine(base), weight=pass_weight),
        _component(key="hacked", value=hacked, weight=-hack_penalty),
        _component(key="coverage", value=None, weight=config.coverage_bonus),
    )
    return Reward(nine(max(0.0, raw)), components, build.coverage if build is not None and score == 1.0 else None)


def _known_build(verdicts: Mapping[str, Verdict]) -> BuildVerdict | None:
    build = verdicts.get("build")
    return build if isinstance(build, BuildVerdict) and is_final(build) else None


def _share_passed(tests: TestCounts | None) -> float:
    """The base of a failing branch: the share of executed tests that passed.

    0 if no test failed: something else failed the branch (its exit code, its page, another check).
    """
    if tests is None or tests.failed == 0:
        return 0.0
    return min(ALMOST, tests.passed / (tests.passed + tests.failed))


def with_coverage(reward: Reward, config: RewardsConfig) -> Reward:
    """The reward of a passing branch with its coverage bonus."""
    assert reward.coverage is not None
    *others, _ = reward.components
    bonus = _component(key="coverage", value=nine(reward.coverage), weight=config.coverage_bonus)
    raw = fsum(part.weight * (part.value or 0.0) for part in (*others, bonus))
    return Reward(nine(max(0.0, raw)), (*others, bonus), reward.coverage)


def _verified_reward_of_version_1(
    status: ObjectiveStatus, verdicts: Mapping[str, Verdict], config: RewardsConfig, hacked: float
) -> Reward | None:
    score = objective_score(status)
    if score is None:
        return None
    build = _known_build(verdicts)
    passed, coverage = score, None
    if build is not None:
        coverage = build.coverage
        passed = _pass_rate_of_version_1(build.tests, score)
    raw = config.pass_weight * passed - config.hack_penalty * hacked + config.coverage_bonus * (coverage or 0.0)
    return Reward(
        nine(min(1.0, max(0.0, raw))),
        (
            _component(key="pass_rate", value=nine(passed), weight=config.pass_weight),
            _component(key="hacked", value=hacked, weight=-config.hack_penalty),
            _component(
                key="coverage", value=None if coverage is None else nine(coverage), weight=config.coverage_bonus
            ),
        ),
    )


def _pass_rate_of_version_1(tests: TestCounts | None, score: float) -> float:
    """The share of passed tests among all, including skipped ones; the objective score if tests do not decide."""
    if tests is None or tests.passed + tests.failed == 0 or tests.total == 0:
        return score
    share = min(1.0, tests.passed / tests.total)
    return score if share == 1.0 else share


def reward_range(components: Sequence[RewardComponent]) -> tuple[float, float]:
    """The lowest and the highest reward that these components can make; those of version 1 and of judges are cut at 1."""
    if not any(part.key == "base" for part in components):
        return 0.0, 1.0
    return 0.0, nine(fsum(part.weight for part in components if part.weight > 0))


def group_of(rewards: Sequence[float]) -> Group:
    """Mean and sample standard deviation of the rewards that are there."""
    n = len(rewards)
    if n == 0:
        return Group(0, None, None)
    mean = fsum(rewards) / n
    if n == 1:
        return Group(1, nine(mean), None)
    spread = sqrt(fsum((reward - mean) ** 2 for reward in rewards) / (n - 1))
    return Group(n, nine(mean), nine(spread))
