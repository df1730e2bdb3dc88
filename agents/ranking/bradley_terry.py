"""Bradley-Terry scores of the branches of one tier, with how sure they are.

`fit` takes the wins of each pair and gives each branch a score theta, such that i beats j with probability
sigma(theta_i - theta_j), and the covariance of the scores. Branches that no chain of comparisons connects are not
compared: each connected component is a fit of its own, and a branch without comparisons has no score. The same wins
give the same bits, alone (`fit`) or among others (`fit_many`), in whatever order the observations came.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import erfc, sqrt
from typing import NamedTuple

from agents.ranking.newton import Floats, Solution, solve

Pair = tuple[int, int]

RIDGE = 0.1
"""Lambda of the penalty (lambda / 2) theta^2: a branch that wins everything gets a finite score."""

SMALLEST_RIDGE, LARGEST_RIDGE = 1e-4, 1e4
"""Below, standard errors are differences of numbers too large to leave many digits; above, all scores are zero."""

MOST_WEIGHT = 1e6
"""Of one observation."""

SQRT2 = sqrt(2.0)

AT_ONCE = 1024
"""Groups that are fitted in one call, so that their numbers stay near."""


class Observation(NamedTuple):
    """One valid judge call: a win is 1 and 0, a tie 0.5 and 0.5."""

    i: int
    """A branch, 0 .. n - 1."""
    j: int
    """Another one."""
    i_wins: float
    j_wins: float


class Group(NamedTuple):
    """Who won between n branches that may be compared with each other. `tally` makes it."""

    n: int
    ahead: Floats
    """For each pair (i, j), i < j, sorted, the wins of i; a tie is half a win."""
    behind: Floats
    """For each pair the wins of j. Both are 0 where they were not compared."""

    def wins(self) -> dict[Pair, tuple[float, float]]:
        """The wins of both, of each pair that was compared."""
        rows = zip(pairs_of(self.n), self.ahead, self.behind, strict=True)
        return {pair: (ahead, behind) for pair, ahead, behind in rows if ahead + behind}


class Fit(NamedTuple):
    """What the wins of one group say. Floats are as computed: `nine` is applied to what leaves the ranking."""

    n: int
    ridge: float
    solution: Solution

    @property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Branches that comparisons connect, two or more: ascending, by their lowest. Their scores add up to zero."""
        home = self.solution.home
        found = [tuple([i for i in range(self.n) if home[i] == first]) for first in range(self.n)]
        return tuple([members for members in found if len(members) > 1])

    def size(self, branch: int) -> int:
        """How many branches its component has, itself among them."""
        return self.solution.home.count(self.solution.home[branch])

    def score(self, branch: int) -> float | None:
        """Theta; None when it was compared with no other."""
        return self.solution.theta[branch] if self.size(branch) > 1 else None

    def se(self, branch: int) -> float | None:
        """The score's standard error, sqrt(C_ii)."""
        variance = self.covariance(branch, branch)
        return None if variance is None else sqrt(max(variance, 0.0))

    def covariance(self, i: int, j: int) -> float | None:
        """C_ij of C = P (H + ridge I)^-1 P. All ones is an eigenvector of H + ridge I, so P takes 1 / (n ridge) off."""
        size = self.size(i)
        if size == 1 or self.solution.home[i] != self.solution.home[j]:
            return None
        return self.solution.inverse[entry(i, j)] - 1.0 / (size * self.ridge)

    def judge_score(self, branch: int) -> float | None:
        """Ten times the mean probability of beating another member of its component: 5 when all are equal."""
        size = self.size(branch)
        return 10.0 * self.solution.shares[branch] / (size - 1) if size > 1 else None

    def probability(self, i: int, j: int) -> float | None:
        """Phi(delta / its standard error): that i is really better than j. None when not comparable, or the same."""
        home, theta, _, z = self.solution
        if i == j or home[i] != home[j]:
            return None
        # C_ii + C_jj - 2 C_ij: the projection P drops out of differences.
        return beats(theta[i] - theta[j], z[entry(i, i)] + z[entry(j, j)] - 2.0 * z[entry(i, j)])


def tally(n: int, observations: Iterable[Observation]) -> Group:
    """Add up observations, in sorted order: the order they come in never matters."""
    wins: dict[Pair, list[float]] = {}
    for i, j, i_wins, j_wins in sorted(observations):
        if not (0 <= i < n and 0 <= j < n and i != j):
            raise ValueError(f"an observation needs two different branches of 0..{n - 1}, not {i} and {j}")
        if not (i_wins >= 0.0 and j_wins >= 0.0 and 0.0 < i_wins + j_wins <= MOST_WEIGHT):
            raise ValueError(f"an observation shares out a weight up to {MOST_WEIGHT:g}, not {i_wins} and {j_wins}")
        won = wins.setdefault((i, j) if i < j else (j, i), [0.0, 0.0])
        won[i > j] += i_wins
        won[i < j] += j_wins
    return group_of(n, wins)


def group_of(n: int, wins: Mapping[Pair, Sequence[float]]) -> Group:
    """A group from the wins of i and of j of each pair (i, j), i < j, that was compared."""
    ahead, behind = array("d", bytes(4 * n * (n - 1))), array("d", bytes(4 * n * (n - 1)))
    for (i, j), won in wins.items():
        at = i * (2 * n - i - 1) // 2 + j - i - 1
        ahead[at], behind[at] = won
    return Group(n, ahead, behind)


def fit(group: Group, ridge: float = RIDGE) -> Fit:
    """Fit one group."""
    _check(ridge)
    return Fit(group.n, ridge, solve(group.n, 1, group.ahead, group.behind, ridge))


def fit_many(groups: Iterable[Group], ridge: float = RIDGE) -> list[Fit]:
    """Fit many groups, those of one size at once: what `fit` gives for each, to the bit."""
    _check(ridge)
    groups = list(groups)
    alike: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        alike.setdefault(group.n, []).append(number)
    fits: dict[int, Fit] = {}
    for n, numbers in alike.items():
        for first in range(0, len(numbers), AT_ONCE):
            some = numbers[first : first + AT_ONCE]
            ahead, behind = array("d"), array("d")
            for number in some:
                ahead += groups[number].ahead
                behind += groups[number].behind
            home, theta, shares, inverse = solve(n, len(some), ahead, behind, ridge)
            entries = n * (n + 1) // 2
            for at, number in enumerate(some):
                one, triangle = slice(at * n, at * n + n), slice(at * entries, at * entries + entries)
                fits[number] = Fit(n, ridge, Solution(home[one], theta[one], shares[one], inverse[triangle]))
    return [fits[number] for number in range(len(groups))]


def _check(ridge: float) -> None:
    if not SMALLEST_RIDGE <= ridge <= LARGEST_RIDGE:
        raise ValueError(f"ridge is {ridge}, and must be from {SMALLEST_RIDGE:g} to {LARGEST_RIDGE:g}")


def beats(difference: float, variance: float) -> float:
    """Phi(difference / sqrt(variance)). A variance that rounding made zero decides by the difference alone."""
    if variance > 0.0:
        return normal_cdf(difference / sqrt(variance))
    return 0.5 if difference == 0.0 else float(difference > 0.0)


def normal_cdf(z: float) -> float:
    """Phi, accurate in both tails."""
    return 0.5 * erfc(-z / SQRT2)


def entry(a: int, b: int) -> int:
    """Where row max(a, b), column min(a, b) of a lower triangle is."""
    return a * (a + 1) // 2 + b if a >= b else b * (b + 1) // 2 + a


def pairs_of(n: int) -> list[Pair]:
    """All pairs (i, j), i < j, sorted."""
    return list(combinations(range(n), 2))
