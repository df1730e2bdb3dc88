"""Properties of the scores of one group."""

import random
from itertools import combinations

import pytest
from scipy.stats import norm

from agents.ranking.bradley_terry import Fit, Observation, beats, fit, normal_cdf, tally
from tests.agents.ranking.simulated import close, full_group, random_group


def strict(order: str, repeats: int = 2) -> Fit:
    """Each letter wins `repeats` times against every later one."""
    indexes = ["abcd".index(letter) for letter in order]
    return fit(tally(4, [Observation(i, j, 1.0, 0.0) for i, j in combinations(indexes, 2)] * repeats))


def test_a_strict_order_is_ranked_strictly() -> None:
    """With a > b > c > d the scores are a, b, c, d in that order."""
    found = strict("abcd")
    scores = [found.score(i) for i in range(4)]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


def test_ties_only_give_equal_scores() -> None:
    """When all comparisons are ties every score is 0 and every judge score 5, exactly."""
    found = fit(tally(5, [Observation(i, j, 0.5, 0.5) for i, j in combinations(range(5), 2)] * 2))
    assert [found.score(i) for i in range(5)] == [0.0] * 5
    assert [found.judge_score(i) for i in range(5)] == [5.0] * 5
    assert found.probability(0, 4) == 0.5


def test_winning_everything_stays_finite() -> None:
    """A branch that wins all of a thousand comparisons has a finite score and a positive standard error."""
    found = fit(tally(2, [Observation(0, 1, 1.0, 0.0)] * 1000))
    assert found.score(0) == pytest.approx(-found.score(1))
    assert 2.0 < found.score(0) < 6.0
    assert found.se(0) > 0.1


def test_both_orders_of_a_position_biased_judge_cancel() -> None:
    """One win each way for every pair gives equal scores."""
    seen = [o for i, j in combinations(range(6), 2) for o in (Observation(i, j, 1.0, 0.0), Observation(j, i, 1.0, 0.0))]
    found = fit(tally(6, seen))
    assert [found.score(i) for i in range(6)] == [0.0] * 6


@pytest.mark.parametrize("seed", range(20))
def test_swapping_indexes_permutes_scores(seed: int) -> None:
    """Numbering the branches otherwise numbers the scores, errors and probabilities otherwise, and nothing else."""
    rng = random.Random(seed)
    group = random_group(rng)
    new = list(range(group.n))
    rng.shuffle(new)
    rows = zip(group.pairs, group.ahead, group.behind, strict=True)
    one, other = fit(group), fit(tally(group.n, [Observation(new[i], new[j], a, b) for (i, j), a, b in rows]))
    for i in range(group.n):
        assert close(other.score(new[i]), one.score(i), rel=1e-10)
        assert close(other.se(new[i]), one.se(i), rel=1e-10)
        assert close(other.judge_score(new[i]), one.judge_score(i), rel=1e-10)
        for j in range(group.n):
            assert close(other.probability(new[i], new[j]), one.probability(i, j), rel=1e-9)


def test_components_are_fits_of_their_own() -> None:
    """Branches that no chain of comparisons connects get the scores they have alone, and no probability."""
    apart = fit(tally(6, [Observation(0, 2, 1.0, 0.0), Observation(1, 4, 0.0, 1.0), Observation(4, 5, 0.5, 0.5)]))
    alone = fit(tally(2, [Observation(0, 1, 1.0, 0.0)]))
    assert [component.members for component in apart.components] == [(0, 2), (1, 4, 5)]
    assert [apart.score(0), apart.score(2)] == [alone.score(0), alone.score(1)]
    assert [apart.score(3), apart.se(3), apart.judge_score(3)] == [None, None, None]
    assert apart.probability(0, 1) is None
    assert apart.probability(0, 3) is None


def test_nothing_compared_gives_no_scores() -> None:
    """Without observations there are no components."""
    assert fit(tally(3, [])).components == ()
    assert fit(tally(0, [])).components == ()


@pytest.mark.parametrize(("calls", "expected"), [(2, 0.865), (4, 0.924)])
def test_unanimous_calls_about_one_pair(calls: int, expected: float) -> None:
    """Two unanimous calls leave the probability below 0.9; four bring it above."""
    found = fit(tally(2, [Observation(0, 1, 1.0, 0.0)] * calls))
    assert found.probability(0, 1) == pytest.approx(expected, abs=5e-4)


def test_probability_is_phi_of_the_difference_in_standard_errors() -> None:
    """P(i beats j) = Phi(delta / sqrt(C_ii + C_jj - 2 C_ij)), and the two ways add up to 1."""
    found = fit(full_group(random.Random(5), [1.0, 0.2, 0.0, -0.4, -1.0], repeats=2))
    for i, j in combinations(range(5), 2):
        spread = found.covariance(i, i) + found.covariance(j, j) - 2 * found.covariance(i, j)
        assert found.probability(i, j) == pytest.approx(norm.cdf((found.score(i) - found.score(j)) / spread**0.5))
        assert found.probability(i, j) + found.probability(j, i) == pytest.approx(1.0)
    assert found.probability(2, 2) is None


def test_zero_variance_decides_by_the_difference() -> None:
    """Should rounding leave no variance, the larger score wins for certain and equal ones are even."""
    assert [beats(0.1, 0.0), beats(-0.1, -1e-18), beats(0.0, 0.0)] == [1.0, 0.0, 0.5]


@pytest.mark.parametrize("z", [-30.0, -8.0, -1.6448536, -0.1, 0.0, 0.5, 1.96, 8.0, 40.0])
def test_normal_cdf(z: float) -> None:
    """Phi agrees with scipy in the middle and in both tails."""
    assert normal_cdf(z) == pytest.approx(norm.cdf(z), rel=1e-13)


def test_the_order_of_observations_does_not_matter() -> None:
    """Shuffled observations, also with weights that do not add up exactly, give the same bits."""
    rng = random.Random(7)
    seen = [Observation(*rng.sample(range(5), 2), rng.random(), rng.random()) for _ in range(60)]
    one = fit(tally(5, seen))
    rng.shuffle(seen)
    assert fit(tally(5, seen)) == one


@pytest.mark.parametrize(
    "bad",
    [
        Observation(0, 0, 1.0, 0.0),
        Observation(-1, 1, 1.0, 0.0),
        Observation(0, 3, 1.0, 0.0),
        Observation(0, 1, -1.0, 2.0),
        Observation(0, 1, 0.0, 0.0),
        Observation(0, 1, float("nan"), 1.0),
        Observation(0, 1, float("inf"), 1.0),
    ],
)
def test_senseless_observations_are_refused(bad: Observation) -> None:
    """A branch against itself or from elsewhere, and weights that are no weights, are errors and not scores."""
    with pytest.raises(ValueError, match="an observation"):
        tally(3, [bad])


@pytest.mark.parametrize("ridge", [0.0, -1.0, 1e-5, float("nan"), float("inf")])
def test_a_senseless_ridge_is_refused(ridge: float) -> None:
    """Without a proper ridge there may be no maximum."""
    with pytest.raises(ValueError, match="ridge"):
        fit(tally(2, [Observation(0, 1, 1.0, 0.0)]), ridge)
