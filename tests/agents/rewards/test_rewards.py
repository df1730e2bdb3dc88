"""The verifiable reward and the statistics of its group."""

import math
from typing import Any

import pytest

from agents.importers.records import read_build
from agents.rewards.rewards import JudgedScores, group_of, reward_of
from schemas.emission import EmissionConfig

PASS = {"status": "success", "exit_code": 0}
FAIL = {"status": "failure", "exit_code": 1}


def value(status: Any, build: dict[str, Any], judge_score: float | None = None) -> float | None:
    verdict = read_build({"rollout_id": "r", "branch_index": 0, **build})
    found = reward_of(status, {"build": verdict}, JudgedScores(judge_score), EmissionConfig())
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("status", "build", "reward"),
    [
        ("pass", PASS, 1.0),
        ("fail", FAIL, 0.0),
        # passing tests count, also where the branch fails
        ("fail", {**FAIL, "tests": {"passed": 3, "failed": 1, "skipped": 0, "total": 4}}, 0.75),
        ("pass", {**PASS, "tests": {"passed": 0, "failed": 0, "skipped": 0, "total": 0}}, 1.0),
        # tests do not decide where none ran, nor where all passed and something else failed the branch
        ("pass", {**PASS, "tests": {"passed": 0, "failed": 0, "skipped": 5, "total": 5}}, 1.0),
        ("fail", {**FAIL, "tests": {"passed": 9, "failed": 0, "skipped": 0, "total": 9}}, 0.0),
        ("fail", {**PASS, "tests": {"passed": 9, "failed": 0, "skipped": 0, "total": 9}}, 0.0),
        ("fail", {**FAIL, "tests": {"passed": 9, "failed": 1, "skipped": 0, "total": 3}}, 0.0),
        # nor where nobody knows what became of the build
        ("pass", {"status": "infra_error", "tests": {"passed": 0, "failed": 9, "skipped": 0, "total": 9}}, 1.0),
        (
            "fail",
            {"status": "running", "coverage": 1.0, "tests": {"passed": 8, "failed": 1, "skipped": 0, "total": 9}},
            0.0,
        ),
        # coverage adds a tenth of itself, up to 1
        ("fail", {**FAIL, "coverage": 0.5}, 0.05),
        ("pass", {**PASS, "coverage": 1.0}, 1.0),
        # a confirmed hack costs 0.4, down to 0
        ("pass", {**PASS, "protected_paths_intact": False}, 0.6),
        ("fail", {**FAIL, "protected_paths_intact": False}, 0.0),
    ],
)
def test_the_verifiable_reward(status: Any, build: dict[str, Any], reward: float) -> None:
    """clamp(pass rate - 0.4 x hacked + 0.1 x coverage, 0, 1)."""
    assert value(status, build) == reward


def test_an_unknown_has_no_reward() -> None:
    """Whatever its verdicts say, and however many tests passed."""
    build = {"status": "running", "tests": {"passed": 4, "failed": 0, "skipped": 0, "total": 4}}
    assert value("unknown", build, judge_score=9.0) is None
    assert value("not_required", build) is None


def test_without_required_verdicts_the_judge_decides() -> None:
    """judge_score / 10, with the judge as the only component."""
    found = reward_of("not_required", {}, JudgedScores(7.5), EmissionConfig())
    assert found is not None
    assert (found.value, [part.key for part in found.components]) == (0.75, ["judge"])


def test_components_stand_beside_the_sum() -> None:
    """Coverage that nobody measured is null, not 0."""
    found = reward_of(
        "pass", {"build": read_build({"rollout_id": "r", "branch_index": 0, **PASS})}, JudgedScores(), EmissionConfig()
    )
    assert found is not None
    assert {part.key: part.value for part in found.components} == {"pass_rate": 1.0, "hacked": 0.0, "coverage": None}


def test_groups_count_only_members_with_a_reward() -> None:
    """Mean and sample deviation; equals have advantage 0, a single one has none."""
    group = group_of([1.0, 0.0, 0.0])
    assert (group.size, group.mean) == (3, pytest.approx(1 / 3))
    assert group.std == pytest.approx(math.sqrt(1 / 3))
    assert group.advantage(1.0) == pytest.approx(2 / math.sqrt(3))
    assert group_of([0.5, 0.5]).advantage(0.5) == 0.0
    assert group_of([0.5]).advantage(0.5) is None
    assert group_of([]).mean is None
