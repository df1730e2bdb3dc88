"""Whether the stated uncertainty is the real one."""

import random
from itertools import combinations
from math import sqrt

from agents.ranking.bradley_terry import fit_many
from agents.ranking.statistics import Z95
from tests.agents.ranking.simulated import full_group


def test_intervals_of_differences_cover_the_truth() -> None:
    """Eight branches, all pairs, both orders: the 95% interval of a difference holds the true one 90% of the time or more."""
    rng = random.Random(2718)
    truths = [[rng.gauss(0.0, 1.0) for _ in range(8)] for _ in range(1500)]
    fits = fit_many(full_group(rng, truth, repeats=2) for truth in truths)
    covered = asked = 0
    for truth, found in zip(truths, fits, strict=True):
        component = found.components[0]
        theta = component.solution.theta
        for i, j in combinations(range(8), 2):
            width = Z95 * sqrt(component.variance(i, j))
            covered += abs((theta[i] - theta[j]) - (truth[i] - truth[j])) <= width
            asked += 1
    assert asked == 1500 * 28
    assert covered / asked >= 0.90


def test_sure_differences_are_real() -> None:
    """Among pairs called better with at least 0.95, at least 93% really are."""
    rng = random.Random(3141)
    truths = [[rng.gauss(0.0, 1.0) for _ in range(6)] for _ in range(1000)]
    right = sure = 0
    for truth, found in zip(truths, fit_many(full_group(rng, truth, repeats=4) for truth in truths), strict=True):
        for i, j in combinations(range(6), 2):
            probability = found.components[0].probability(i, j)
            if max(probability, 1.0 - probability) >= 0.95:
                sure += 1
                right += (probability > 0.5) == (truth[i] > truth[j])
    assert sure > 1000
    assert right / sure >= 0.93
