"""One group, a batch, and the three ways to do the arithmetic give the same result."""

import random
from array import array

import pytest

from agents.ranking.bradley_terry import fit, fit_many
from agents.ranking.large import large
from agents.ranking.newton import BATCH, Problem, solve, solve_alike
from agents.ranking.portable import Floats, exponentials
from agents.ranking.unrolled import ring, unrolled
from schemas.numbers import nine
from tests.agents.ranking.simulated import full_group, random_group


def test_a_batch_gives_the_bits_of_single_fits() -> None:
    """Three thousand groups of all sizes, shapes and components: `fit_many` equals `fit` in every bit."""
    rng = random.Random(11)
    groups = [random_group(rng) for _ in range(3000)]
    assert fit_many(groups) == [fit(group) for group in groups]


def test_more_groups_than_one_batch() -> None:
    """Groups beyond one batch are fitted in the next, in order."""
    rng = random.Random(12)
    groups = [full_group(rng, [0.5, 0.0, -0.5], repeats=2) for _ in range(BATCH + 30)]
    assert fit_many(groups)[-40:] == [fit(group) for group in groups[-40:]]


def test_large_groups_in_a_batch() -> None:
    """Groups of more than 16 branches are fitted one after the other, also in a batch."""
    rng = random.Random(13)
    groups = [random_group(rng, 17, 24) for _ in range(30)]
    assert fit_many(groups) == [fit(group) for group in groups]


@pytest.mark.parametrize("n", [8, 11, 16])
def test_code_for_the_ring_gives_the_bits_of_code_for_all_pairs(n: int) -> None:
    """Leaving out pairs that were not compared changes no bit."""
    rng = random.Random(n)
    ahead = array("d", [rng.randint(0, 4) for _ in ring(n)])
    behind = array("d", [rng.randint(1, 4) for _ in ring(n)])
    wins = {pair: (a, b) for pair, a, b in zip(ring(n), ahead, behind, strict=True)}
    rows = [wins.get(pair, (0.0, 0.0)) for pair in unrolled(n, sparse=False).pairs]
    sparse = solve(Problem(n, True, ahead, behind), 0.1)
    full = solve(Problem(n, False, array("d", [a for a, _ in rows]), array("d", [b for _, b in rows])), 0.1)
    assert sparse == full


@pytest.mark.parametrize("n", [2, 5, 16])
def test_matrices_agree_with_straight_line_code(n: int) -> None:
    """The way for large groups gives the steps, win probabilities and inverse of the unrolled code."""
    rng = random.Random(n)
    group = full_group(rng, [rng.gauss(0.0, 1.0) for _ in range(n)], repeats=3, ties=0.2)
    one, other = unrolled(n, sparse=False), large(n)
    assert one.pairs == other.pairs
    begun = one.begin(group.ahead, group.behind, lambda x: x**0.5)
    assert other.begin(group.ahead, group.behind, lambda x: x**0.5) == pytest.approx(begun, rel=1e-12)
    theta, wins, counts = begun[:n], begun[n : 2 * n], begun[2 * n : -1]
    strengths = exponentials(list(theta))
    step, large_step = (
        one.newton(theta, strengths, wins, counts, 0.1),
        other.newton(theta, strengths, wins, counts, 0.1),
    )
    assert large_step[:n] == pytest.approx(step[:n], rel=1e-10)
    assert other.finish(strengths, large_step[n:]) == pytest.approx(one.finish(strengths, step[n:]), rel=1e-12)


def test_rounded_results_do_not_depend_on_the_batch() -> None:
    """What leaves, rounded to nine digits, is the same in batches of any size."""
    rng = random.Random(17)
    problems = [Problem(3, False, *_wins(rng)) for _ in range(100)]
    whole = solve_alike(problems, 0.1)
    parts = [solution for at in range(0, 100, 7) for solution in solve_alike(problems[at : at + 7], 0.1)]
    assert [list(map(nine, s.theta)) for s in whole] == [list(map(nine, s.theta)) for s in parts]


def _wins(rng: random.Random) -> tuple[Floats, Floats]:
    return array("d", [rng.randint(0, 4) / 2 for _ in range(3)]), array("d", [rng.randint(1, 4) / 2 for _ in range(3)])
