"""Newton's method ends at the maximum, whatever it is given."""

import random
from itertools import combinations

import numpy as np
import pytest

from agents.ranking import newton
from agents.ranking.bradley_terry import Fit, Group, Observation, fit, fit_many, tally
from tests.agents.ranking.oracle import gradient, wins_of
from tests.agents.ranking.simulated import close, random_group


def slope(group: Group, found: Fit) -> float:
    """The largest entry of the gradient at the scores found, in wins."""
    theta = np.array([found.score(i) or 0.0 for i in range(group.n)])
    return float(np.abs(gradient(theta, wins_of(group)) - found.ridge * theta).max())


@pytest.mark.parametrize("n", [2, 4, 8, 16, 20])
@pytest.mark.parametrize("repeats", [1, 100, 1_000_000])
@pytest.mark.parametrize("ridge", [1e-4, 0.1, 100.0])
def test_strict_orders_of_any_size_and_weight(n: int, repeats: int, ridge: float) -> None:
    """A strict order, the hardest case, has the gradient zero where the fit ends, and the right order."""
    group = tally(n, [Observation(i, j, float(repeats), 0.0) for i, j in combinations(range(n), 2)])
    found = fit(group, ridge)
    scores = [found.score(i) for i in range(n)]
    assert scores == sorted(scores, reverse=True)
    assert slope(group, found) < 1e-8 * repeats


def test_lopsided_counts() -> None:
    """One pair asked a million times beside pairs asked once does not disturb the others."""
    group = tally(4, [Observation(0, 1, 9e5, 1e5), Observation(1, 2, 1.0, 0.0), Observation(2, 3, 0.0, 1.0)])
    assert slope(group, fit(group)) < 1e-6


def test_careful_steps_reach_the_same_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Careful steps from zero, the way of last resort, find what bold steps find: alone and in a batch."""
    rng = random.Random(3)
    groups = [random_group(rng, 2, 8) for _ in range(200)]
    bold = fit_many(groups)
    monkeypatch.setattr(newton, "PATIENCE", 0)
    careful = fit_many(groups)
    assert careful == [fit(group) for group in groups]
    for one, other in zip(bold, careful, strict=True):
        for i in range(one.n):
            assert close(other.score(i), one.score(i), rel=1e-9)
            assert close(other.se(i), one.se(i), rel=1e-9)


def test_no_maximum_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the rounds ever used up, there is an error and not a score."""
    monkeypatch.setattr(newton, "ROUNDS", 1)
    group = tally(3, [Observation(0, 1, 1.0, 0.0), Observation(1, 2, 1.0, 0.0)])
    with pytest.raises(ArithmeticError, match="larger ridge"):
        fit(group)
    with pytest.raises(ArithmeticError, match="larger ridge"):
        fit_many([group] * 100)
