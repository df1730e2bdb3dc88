"""Scores and standard errors against an independent fit."""

import random

import numpy as np
import pytest

from agents.ranking.bradley_terry import Fit, Group, fit
from tests.agents.ranking import oracle
from tests.agents.ranking.simulated import random_group

RIDGE = 0.1


@pytest.fixture(scope="module")
def groups() -> list[tuple[Group, Fit]]:
    rng = random.Random(20240611)
    return [(group, fit(group, RIDGE)) for group in (random_group(rng) for _ in range(1000))]


def test_scores_are_those_of_a_general_optimizer(groups: list[tuple[Group, Fit]]) -> None:
    """A thousand random groups with ties and missing votes get the scores that scipy finds, within 1e-6."""
    for group, found in groups:
        expected = oracle.scores(oracle.wins_of(group), RIDGE)
        ours = [found.score(i) or 0.0 for i in range(group.n)]
        assert np.abs(expected - ours).max() < 1e-6


def test_covariances_are_those_of_a_numerical_hessian(groups: list[tuple[Group, Fit]]) -> None:
    """Standard errors and covariances are those of a Hessian made of differences, within 1e-4."""
    for group, found in groups:
        theta = np.array([found.score(i) or 0.0 for i in range(group.n)])
        expected = oracle.covariance(theta, oracle.wins_of(group), RIDGE)
        for component in found.components:
            own = list(component.members)
            ours = np.array([[found.covariance(i, j) for j in own] for i in own])
            assert np.abs(ours - expected[np.ix_(own, own)]).max() < 1e-4
            assert np.abs([found.se(i) for i in own] - np.sqrt(expected[own, own])).max() < 1e-4


def test_only_connected_branches_have_scores(groups: list[tuple[Group, Fit]]) -> None:
    """A branch has a score exactly when it was compared, and scores of a component add up to zero."""
    for group, found in groups:
        compared = {branch for pair in group.pairs for branch in pair}
        assert {i for i in range(group.n) if found.score(i) is not None} == compared
        for component in found.components:
            assert sum(component.solution.theta) == pytest.approx(0.0, abs=1e-12)


def test_judge_score_is_the_mean_chance_against_the_others(groups: list[tuple[Group, Fit]]) -> None:
    """The judge score is ten times the mean of sigma(theta_i - theta_j) over the others of the component."""
    for _, found in groups[:200]:
        for component in found.components:
            theta = np.array(component.solution.theta)
            chances = 1.0 / (1.0 + np.exp(theta[None, :] - theta[:, None]))
            expected = 10.0 * (chances.sum(1) - 0.5) / (len(theta) - 1)
            assert [found.judge_score(i) for i in component.members] == pytest.approx(expected, rel=1e-12)
