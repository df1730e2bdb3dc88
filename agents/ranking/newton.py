"""Newton's method for the penalised Bradley-Terry likelihood.

Maximises L(theta) = sum of wins_ij log sigma(theta_i - theta_j) - (ridge / 2) sum of theta_i^2 over the branches of one
component. Only operations whose result IEEE 754 fixes to the last bit, in one order: nothing depends on a linear
algebra library, on the C library's exp, or on the other groups fitted at the same time. `_newton.c` does the same
operations in the same order, so it gives the same bits, some hundred times faster; it is used if it was compiled (see
`compiled_adapter`).

Why it always ends at the one maximum: L is strictly concave (the ridge), so a zero gradient is the maximum, from any
start. Full steps from a good start get there in four to seven rounds, each squaring the error. Should they not within
PATIENCE rounds, the search starts again from zero with steps of at most CAREFUL per branch. Then no difference
theta_i - theta_j moves by more than c = 2 CAREFUL, and because |sigma''| <= sigma', curvature along such a step x
grows by a factor of at most e^c. With v = x'Ax > 0 and a share t <= 1 of the step, L rises by at least v t
(1 - (e^c - 1 - c) / c^2) > v t / 9 for c = 1.5: every careful step climbs, and near the maximum steps are full.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import combinations
from math import sqrt
from typing import NamedTuple, TypeAlias

from agents.ranking.portable import exponential, grown

Floats: TypeAlias = "array[float]"
Ints: TypeAlias = "array[int]"
Matrix = list[list[float]]

TOLERANCE = 1e-10
"""The last step moves no score by more. The remaining error is its square; the covariance is taken at the start of that
step.
"""

NOISE = 1e-15
"""A gradient over m comparisons is known to about this times m, so a step to this times m / ridge. With a hundred
thousand comparisons the noise is larger than the tolerance, and replaces it.
"""

BOLD = 2.0
"""Longest step of a branch at first: exp must not overflow on the way, and `grown` is good to here."""

PATIENCE = 16
"""Rounds of bold steps. With ridge 0.1 they took 8 at most for 20,000 random groups of 2 to 16 branches."""

CAREFUL = 0.75
"""Longest step of a branch after that; see above."""

ROUNDS = 10_000
"""In all; 233 were the most ever seen (a strict order of 16 with a million wins a pair and ridge 1e-6). With ridge 0.1 a careful
step that is cut short raises L by 0.006 or more, and L begins at -0.7 per comparison."""

NO_MAXIMUM = f"no maximum after {ROUNDS} rounds: choose a larger ridge for so many comparisons"


class Rules(NamedTuple):
    """When a search steps how far, and when it ends."""

    ridge: float
    tolerance: float
    noise: float
    bold: float
    careful: float
    patience: int
    rounds: int


class Problem(NamedTuple):
    """Connected branches, numbered from 0, and who won between them: in one group, or in several with the same pairs."""

    size: int
    pairs: Ints
    """i, j, i, j, ...: the pairs i < j that were compared, sorted."""
    ahead: Floats
    """For each group and pair the wins of i, a tie being half a win."""
    behind: Floats
    """Wins of j."""


class Solution(NamedTuple):
    """The maximum of each group in order, and the curvature there."""

    theta: Floats
    shares: Floats
    """For each branch the sum of sigma(theta_i - theta_j) over the others."""
    inverse: Floats
    """The lower triangle of (H + ridge I)^-1, by rows."""


Way = Callable[[int, int, Ints, Floats, Floats, Floats, Floats, Floats, Rules], bool]
"""(size, groups, pairs, ahead, behind, and the three of a `Solution` to write into, rules) -> whether all have a maximum."""


def in_python(
    n: int, groups: int, pairs: Ints, ahead: Floats, behind: Floats, theta: Floats, shares: Floats, inverse: Floats,
    rules: Rules, /,
) -> bool:  # fmt: skip
    """The `Way` without a compiler; the reference for the compiled one."""
    many, entries = len(pairs) // 2, n * (n + 1) // 2
    for group in range(groups):
        won: Matrix = [[0.0] * n for _ in range(n)]
        for pair in range(many):
            i, j = pairs[2 * pair], pairs[2 * pair + 1]
            won[i][j], won[j][i] = ahead[group * many + pair], behind[group * many + pair]
        search = _Search(won)
        if not search.climb(rules):
            return False
        chances, z = search.finish()
        theta[group * n : group * n + n] = array("d", search.theta)
        shares[group * n : group * n + n] = array("d", chances)
        triangle = [z[a][b] for a in range(n) for b in range(a + 1)]
        inverse[group * entries : group * entries + entries] = array("d", triangle)
    return True


class _Search:
    """The way to the maximum of one component.

    The matrix of a step is A = H + ridge I, H the Hessian of the likelihood. Off the diagonal A is -w_ij with
    w_ij = count_ij p_ij p_ji >= 0, and elimination only ever adds to the w, so they are kept as positive numbers. Then the
    factors of A = L D L' (with L_ij = -f_ij) and its inverse are sums of positive terms, without cancellation.
    """

    def __init__(self, won: Matrix) -> None:
        """Start from the share of wins of a branch, and add the same for the mean opponent.

        With y = (wins - losses) / (count + 2), 2.4 y / sqrt(1.01 - y^2) is near the log odds, without a logarithm, and
        below 24 for any count. The start changes the number of rounds, not the result: 2.4 needed the fewest.
        """
        self.n = n = len(won)
        self.counts = [[won[i][j] + won[j][i] for j in range(n)] for i in range(n)]
        wins = [_sum(row) for row in won]
        met = [_sum(row, 2.0) for row in self.counts]
        shares = [(w + w + 2.0) / m - 1.0 for w, m in zip(wins, met, strict=True)]
        start = [2.4 * y / sqrt(1.01 - y * y) for y in shares]
        others = [_sum([c * x for c, x in zip(row, start, strict=True)]) for row in self.counts]
        theta = [x + other / m for x, other, m in zip(start, others, met, strict=True)]
        mean = _sum(theta) / n
        self.theta = [t - mean for t in theta]
        self.strengths = [exponential(t) for t in self.theta]
        self.whole = _sum(wins)
        # Of j's comparisons with lower branches i, c - won_ij is expected: c is subtracted here, once.
        for j in range(n):
            for i in range(j):
                wins[j] -= self.counts[i][j]
        self.wins = wins
        self.pivots = [0.0] * n
        self.factors: Matrix = [[0.0] * n for _ in range(n)]

    def climb(self, rules: Rules) -> bool:
        """Step until the last step is short."""
        near = rules.tolerance + self.whole * (rules.noise / rules.ridge)
        for done in range(rules.rounds):
            if done == rules.patience:
                self.theta, self.strengths = [0.0] * self.n, [1.0] * self.n
            step = self._step(rules.ridge)
            longest = max(map(abs, step))
            limit = rules.bold if done < rules.patience else rules.careful
            if longest > limit:
                cut = limit / longest
                step = [x * cut for x in step]
            self.theta = [t + x for t, x in zip(self.theta, step, strict=True)]
            self.strengths = [grown(e, x) for e, x in zip(self.strengths, step, strict=True)]
            if longest < near:
                return True
        return False

    def _step(self, ridge: float) -> list[float]:
        """The gradient g, the matrix (d on the diagonal, -w below), elimination, back substitution."""
        n, e, f = self.n, self.strengths, self.factors
        g = [won - ridge * t for won, t in zip(self.wins, self.theta, strict=True)]
        d = [ridge] * n
        w: Matrix = [[0.0] * n for _ in range(n)]
        for i, j in combinations(range(n), 2):
            p = e[i] / (e[i] + e[j])
            u = self.counts[i][j] * p
            v = w[j][i] = u - u * p
            g[i] -= u
            g[j] += u
            d[i] += v
            d[j] += v
        for k in range(n):
            self.pivots[k] = 1.0 / d[k]
            for i in range(k + 1, n):
                factor = f[i][k] = w[i][k] * self.pivots[k]
                if factor == 0.0:
                    continue
                d[i] -= factor * w[i][k]
                g[i] += factor * g[k]
                for j in range(k + 1, i):
                    w[i][j] += factor * w[j][k]
        g = [x * pivot for x, pivot in zip(g, self.pivots, strict=True)]
        for k in reversed(range(1, n)):
            for j in range(k):
                g[j] += f[k][j] * g[k]
        return g

    def finish(self) -> tuple[list[float], Matrix]:
        """Win probabilities; the inverse Z from its last row up: Z_ij = [i = j] / d_i + sum over k > i of f_ki Z_kj."""
        n, e, f = self.n, self.strengths, self.factors
        shares = [0.0] * n
        for i, j in combinations(range(n), 2):
            both = e[i] + e[j]
            shares[i] += e[i] / both
            shares[j] += e[j] / both
        z: Matrix = [[0.0] * n for _ in range(n)]
        for i in reversed(range(n)):
            for j in reversed(range(i, n)):
                terms = [f[k][i] * z[k][j] for k in range(i + 1, n)]
                z[i][j] = z[j][i] = _sum(terms, self.pivots[i] if i == j else 0.0)
        return shares, z


def _sum(terms: Sequence[float], start: float = 0.0) -> float:
    """From left to right, each sum rounded, because Python's own `sum` is more exact from 3.12 on."""
    for term in terms:
        start += term
    return start
