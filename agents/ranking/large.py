"""The arithmetic of Bradley-Terry for any number of branches: the mathematics of `unrolled`, on numpy matrices.

For groups of more than 16 branches, one at a time. Only operations on single elements and running sums (which numpy
adds from left to right), so that the bits do not depend on a linear algebra library or on how a sum is vectorised.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from agents.ranking.portable import Vector
from agents.ranking.unrolled import Kernel, Numbers, Results


@lru_cache(maxsize=64)
def large(n: int) -> Kernel:
    """The functions of a `Kernel` for n branches and all pairs, on sequences of floats."""
    lower, upper = np.tril_indices(n), np.triu_indices(n, 1)

    def begin(ahead: Numbers, behind: Numbers, _: Callable[[Any], Any]) -> Results:
        won = np.zeros((n, n))
        won[upper] = ahead
        won.T[upper] = behind
        wins, losses = _row_sums(won), _row_sums(won.T)
        counts = won + won.T
        met = wins + losses + 2.0
        y = (wins + wins + 2.0) / met - 1.0
        x = 2.4 * y / np.sqrt(1.01 - y * y)
        start = x + _row_sums(counts * x) / met
        start -= np.add.accumulate(start)[-1] / n
        given = wins - _row_sums(np.tril(counts))
        return (*start.tolist(), *given.tolist(), *counts[upper].tolist(), float(np.add.accumulate(wins)[-1]))

    def newton(theta: Numbers, strengths: Numbers, wins: Numbers, counts: Numbers, ridge: float) -> Results:
        met = np.zeros((n, n))
        met[upper] = counts
        met += met.T
        chances = _chances(strengths)
        expected = met * chances
        won = np.triu(expected, 1)  # by the lower branch of each pair; the wins are given less the higher one's counts
        g = np.array(wins) - ridge * np.array(theta) - _row_sums(won - won.T)
        w = expected * chances.T
        d = ridge + _row_sums(w)
        inverse_d, below = np.empty(n), np.zeros((n, n))
        for k in range(n):
            inverse_d[k] = 1.0 / d[k]
            column = w[k + 1 :, k]
            factor = below[k + 1 :, k] = column * inverse_d[k]
            d[k + 1 :] -= factor * column
            g[k + 1 :] += factor * g[k]
            w[k + 1 :, k + 1 :] += factor[:, None] * column
        g *= inverse_d
        for k in reversed(range(n)):
            g[:k] += below[k, :k] * g[k]
        return (*g.tolist(), inverse_d, below)

    def finish(strengths: Numbers, factors: Numbers) -> Results:
        inverse_d, below = factors
        chances = _chances(strengths)
        np.fill_diagonal(chances, 0.0)
        inverse = np.zeros((n, n))
        inverse[-1, -1] = inverse_d[-1]
        for i in reversed(range(n - 1)):
            factor = below[i + 1 :, i]
            row = np.add.accumulate(factor[:, None] * inverse[i + 1 :, i + 1 :], axis=0)[-1]
            inverse[i, i + 1 :] = inverse[i + 1 :, i] = row
            inverse[i, i] = inverse_d[i] + np.add.accumulate(factor * row)[-1]
        return (*_row_sums(chances).tolist(), *inverse[lower].tolist())

    return Kernel(tuple(combinations(range(n), 2)), begin, newton, None, finish)


def _chances(strengths: Numbers) -> Vector:
    """Sigma(theta_i - theta_j) for all i and j."""
    e = np.array(strengths)
    chances: Vector = e[:, None] / (e[:, None] + e)
    return chances


def _row_sums(matrix: Vector) -> Vector:
    sums: Vector = np.add.accumulate(matrix, axis=1)[:, -1]
    return sums
