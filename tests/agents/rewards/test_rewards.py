"""The verifiable reward and the statistics of its group."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from agents.importers.records import read_build
from agents.rewards.rewards import JudgedScores, group_of, reward_of, with_coverage
from agents.rules.emission_rules import RULES
from agents.verdicts.meaning import Verdict, hack_signals
from schemas.emission import EmissionConfig, RewardsConfig

PASS = {"status": "success", "exit_code": 0}
FAIL = {"status": "failure", "exit_code": 1}


OLD, NEW = EmissionConfig(version=1), EmissionConfig()


def value(
    status: Any, build: dict[str, Any], judge_score: float | None = None, config: EmissionConfig = NEW
) -> float | None:
    verdicts: dict[str, Verdict] = {"build": read_build({"rollout_id": "r", "branch_index": 0, **build})}
    rules = RULES[config.version]
    found = reward_of(status, verdicts, JudgedScores(judge_score), config, hack_signals(verdicts, rules), rules)
    return None if found is None else found.value


def counts(passed: int, failed: int, skipped: int = 0, **more: int) -> dict[str, Any]:
    return {
        "tests": {"passed": passed, "failed": failed, "skipped": skipped, "total": passed + failed + skipped, **more}
    }


CASES: tuple[tuple[str, dict[str, Any], float, float], ...] = (
    ("pass", PASS, 1.0, 1.0),
    ("fail", FAIL, 0.0, 0.0),
    # passing tests count, also where the branch fails; skipped ones did not run
    ("fail", FAIL | counts(3, 1), 0.75, 0.75),
    ("fail", FAIL | counts(3, 1, 4), 0.75, 0.375),
    ("pass", PASS | counts(5, 0, 5), 1.0, 0.5),
    ("pass", PASS | counts(0, 0), 1.0, 1.0),
    ("pass", PASS | counts(0, 0, 5), 1.0, 1.0),
    # tests do not decide where all passed and something else failed the branch
    ("fail", FAIL | counts(9, 0), 0.0, 0.0),
    ("fail", PASS | counts(9, 0), 0.0, 0.0),
    # nor where the outcome of the build is unknown
    ("pass", {"status": "infra_error"} | counts(0, 9), 1.0, 1.0),
    ("fail", {"status": "running", "coverage": 1.0} | counts(8, 1), 0.0, 0.0),
    # coverage is no reward of a failing branch
    ("fail", {**FAIL, "coverage": 0.5}, 0.0, 0.05),
    ("fail", {**FAIL, "coverage": 1.0} | counts(9, 1), 0.9, 1.0),
    # a pass that the opening allowed to have failing tests is a pass
    ("pass", PASS | counts(1, 9), 1.0, 0.1),
    # a confirmed hack costs 0.4, down to 0
    ("pass", {**PASS, "protected_paths_intact": False}, 0.6, 0.6),
    ("fail", {**FAIL, "protected_paths_intact": False}, 0.0, 0.0),
)


@pytest.mark.parametrize(("status", "build", "reward", "before"), CASES)
def test_the_verifiable_reward(status: Any, build: dict[str, Any], reward: float, before: float) -> None:
    """1 for a pass, the share of tests that passed for a fail, less 0.4 for a hack; version 1 keeps its own rule."""
    assert value(status, build) == reward
    assert value(status, build, config=OLD) == before


@pytest.mark.parametrize("weight", [1.0, 0.3, 7.0])
def test_no_rounding_lifts_a_fail_to_a_pass(weight: float) -> None:
    """One failing test among ten thousand million is still a failing test."""
    config = EmissionConfig(rewards=RewardsConfig(pass_weight=weight))
    fail, passed = value("fail", FAIL | counts(10**10, 1), config=config), value("pass", PASS, config=config)
    assert fail is not None
    assert passed is not None
    assert fail < passed


def test_coverage_is_added_to_a_pass() -> None:
    """A tenth of it, beside the other components, and not cut at 1."""
    verdicts: dict[str, Verdict] = {
        "build": read_build({"rollout_id": "r", "branch_index": 0, **PASS, "coverage": 0.5})
    }
    found = reward_of("pass", verdicts, JudgedScores(), EmissionConfig(), (), RULES[2])
    assert found is not None
    assert found.value == 1.0
    covered = with_coverage(found, EmissionConfig().rewards)
    assert (covered.value, [part.value for part in covered.components]) == (1.05, [1.0, 0.0, 0.5])


@pytest.mark.parametrize("said", [{"pass_weight": 0.0}, {"hack_penalty": -0.1}, {"coverage_bonus": -0.1}])
def test_weights_that_would_turn_the_order_around_are_refused(said: dict[str, float]) -> None:
    """A log of version 1 that was made with them stays readable."""
    with pytest.raises(ValidationError):
        EmissionConfig(rewards=RewardsConfig(**said))
    assert EmissionConfig(version=1, rewards=RewardsConfig(**said))


def test_an_unknown_has_no_reward() -> None:
    """For any verdicts, and any number of passed tests."""
    build = {"status": "running", "tests": {"passed": 4, "failed": 0, "skipped": 0, "total": 4}}
    assert value("unknown", build, judge_score=9.0) is None
    assert value("not_required", build) is None


def test_without_required_verdicts_the_judge_decides() -> None:
    """judge_score / 10, with the judge as the only component."""
    found = reward_of("not_required", {}, JudgedScores(7.5), EmissionConfig(), (), RULES[2])
    assert found is not None
    assert (found.value, [part.key for part in found.components]) == (0.75, ["judge"])


def test_components_stand_beside_the_sum() -> None:
    """Coverage that was not measured is null, not 0."""
    found = reward_of(
        "pass",
        {"build": read_build({"rollout_id": "r", "branch_index": 0, **PASS})},
        JudgedScores(),
        EmissionConfig(),
        (),
        RULES[2],
    )
    assert found is not None
    assert {part.key: part.value for part in found.components} == {"base": 1.0, "hacked": 0.0, "coverage": None}


def test_groups_count_only_members_with_a_reward() -> None:
    """Mean and sample deviation; equals have advantage 0, a single one has none."""
    group = group_of([1.0, 0.0, 0.0])
    assert (group.size, group.mean) == (3, pytest.approx(1 / 3))
    assert group.std == pytest.approx(math.sqrt(1 / 3))
    assert group.advantage(1.0) == pytest.approx(2 / math.sqrt(3))
    assert group_of([0.5, 0.5]).advantage(0.5) == 0.0
    assert group_of([0.5]).advantage(0.5) is None
    assert group_of([]).mean is None
