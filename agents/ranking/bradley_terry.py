"""Bradley-Terry scores of the branches of one tier, with how sure they are.

`fit` takes the wins of each pair and gives each branch a score theta, such that i beats j with probability
sigma(theta_i - theta_j), and the covariance of the scores. Branches that no chain of comparisons connects are not
compared: each connected component is a fit of its own, and a branch without comparisons has no score. The same wins
give the same bits, alone (`fit`) or among others (`fit_many`), in whatever order the observations came.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import erfc, sqrt
from typing import NamedTuple

from agents.ranking.newton import Problem, Solution, solve, solve_alike
from agents.ranking.portable import Floats
from agents.ranking.unrolled import LARGEST, Pair, ring

RIDGE = 0.1
"""Lambda of the penalty (lambda / 2) theta^2: a branch that wins everything gets a finite score."""

SMALLEST_RIDGE, LARGEST_RIDGE = 1e-4, 1e4
"""Below, standard errors are differences of numbers too large to leave many digits; above, all scores are zero."""

MOST_WEIGHT = 1e6
"""Of one observation."""

SQRT2 = sqrt(2.0)

BATCH_FROM = 24
"""Groups of one kind from which on a batch is quicker than one after the other."""


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
    pairs: tuple[Pair, ...]
    """(i, j) with i < j: the pairs that were compared, each once, sorted."""
    ahead: Floats
    """For each pair the wins of i."""
    behind: Floats
    """For each pair the wins of j."""


class Component(NamedTuple):
    """Branches that comparisons connect. Their scores add up to zero."""

    members: tuple[int, ...]
    """The branches, ascending; the solution is in this order."""
    solution: Solution

    def variance(self, a: int, b: int) -> float:
        """C_aa + C_bb - 2 C_ab of two members by position. The projection P drops out of differences."""
        z = self.solution.inverse
        return z[_entry(a, a)] + z[_entry(b, b)] - 2.0 * z[_entry(a, b)]

    def probability(self, a: int, b: int) -> float:
        """Phi(delta / its standard error) of two members by position."""
        theta = self.solution.theta
        return beats(theta[a] - theta[b], self.variance(a, b))


class Fit(NamedTuple):
    """What the wins of one group say. Floats are as computed: `nine` is applied to what leaves the ranking."""

    n: int
    ridge: float
    components: tuple[Component, ...]
    """Those of two branches or more, by their lowest branch."""

    def place(self, branch: int) -> tuple[Component, int] | None:
        """The component of a branch and its position there; None when it was compared with no other."""
        for component in self.components:
            if branch in component.members:
                return component, component.members.index(branch)
        return None

    def score(self, branch: int) -> float | None:
        """Theta."""
        place = self.place(branch)
        return None if place is None else place[0].solution.theta[place[1]]

    def se(self, branch: int) -> float | None:
        """The score's standard error, sqrt(C_ii)."""
        variance = self.covariance(branch, branch)
        return None if variance is None else sqrt(max(variance, 0.0))

    def covariance(self, i: int, j: int) -> float | None:
        """C_ij of C = P (H + ridge I)^-1 P. All ones is an eigenvector of H + ridge I, so P takes 1 / (n ridge) off."""
        both = self._both(i, j)
        if both is None:
            return None
        component, a, b = both
        return component.solution.inverse[_entry(a, b)] - 1.0 / (len(component.members) * self.ridge)

    def judge_score(self, branch: int) -> float | None:
        """Ten times the mean probability of beating another member of its component: 5 when all are equal."""
        place = self.place(branch)
        if place is None:
            return None
        component, position = place
        return 10.0 * component.solution.shares[position] / (len(component.members) - 1)

    def probability(self, i: int, j: int) -> float | None:
        """Probability that i is really better than j. None when they are not comparable, or the same."""
        both = self._both(i, j)
        return None if both is None or i == j else both[0].probability(*both[1:])

    def _both(self, i: int, j: int) -> tuple[Component, int, int] | None:
        first, second = self.place(i), self.place(j)
        if first is None or second is None or first[0] is not second[0]:
            return None
        return first[0], first[1], second[1]


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
    pairs = tuple(sorted(wins))
    return Group(n, pairs, array("d", [wins[pair][0] for pair in pairs]), array("d", [wins[pair][1] for pair in pairs]))


def fit(group: Group, ridge: float = RIDGE) -> Fit:
    """Fit one group."""
    _check_ridge(ridge)
    parts = _parts(group)
    return Fit(group.n, ridge, tuple([Component(members, solve(problem, ridge)) for members, problem in parts]))


def fit_many(groups: Iterable[Group], ridge: float = RIDGE) -> list[Fit]:
    """Fit many groups: what `fit` gives for each, to the bit."""
    _check_ridge(ridge)
    split = [(group.n, _parts(group)) for group in groups]
    alike: dict[tuple[int, bool], list[Problem]] = {}
    for _, parts in split:
        for _, problem in parts:
            alike.setdefault((problem.size, problem.sparse), []).append(problem)
    # Each kind is solved in the order of the groups, so the next solution of its kind is always a problem's own.
    solved = {kind: iter(_solve_all(problems, ridge)) for kind, problems in alike.items()}
    fits = []
    for n, parts in split:
        components = [Component(members, next(solved[problem.size, problem.sparse])) for members, problem in parts]
        fits.append(Fit(n, ridge, tuple(components)))
    return fits


def beats(difference: float, variance: float) -> float:
    """Phi(difference / sqrt(variance)). A variance that rounding made zero decides by the difference alone."""
    if variance > 0.0:
        return normal_cdf(difference / sqrt(variance))
    return 0.5 if difference == 0.0 else float(difference > 0.0)


def normal_cdf(z: float) -> float:
    """Phi, accurate in both tails."""
    return 0.5 * erfc(-z / SQRT2)


def _check_ridge(ridge: float) -> None:
    if not SMALLEST_RIDGE <= ridge <= LARGEST_RIDGE:
        raise ValueError(f"ridge is {ridge}, and must be from {SMALLEST_RIDGE:g} to {LARGEST_RIDGE:g}")


def _entry(a: int, b: int) -> int:
    """Where row max(a, b), column min(a, b) of a lower triangle is."""
    return a * (a + 1) // 2 + b if a >= b else b * (b + 1) // 2 + a


def _solve_all(problems: list[Problem], ridge: float) -> list[Solution]:
    if len(problems) < BATCH_FROM:
        return [solve(problem, ridge) for problem in problems]
    return solve_alike(problems, ridge)


def _parts(group: Group) -> list[tuple[tuple[int, ...], Problem]]:
    """The components of two branches or more, by their lowest branch, each as a problem of its own."""
    n, pairs, ahead, behind = group
    for sparse in (True, False):
        # The usual case: every pair of the judge's schedule, or every pair there is. All branches are connected.
        if len(pairs) == len(_pairs(n, sparse)) and pairs == _pairs(n, sparse):
            return [(_all(n), Problem(n, sparse, ahead, behind))] if pairs else []
    wins = dict(zip(pairs, zip(ahead, behind, strict=True), strict=True))
    return [(members, _problem(members, wins)) for members in _connected(n, wins)]


def _connected(n: int, pairs: Iterable[Pair]) -> list[tuple[int, ...]]:
    """Members of each component with at least two, ascending."""
    home = list(range(n))
    members = {i: [i] for i in range(n)}
    for i, j in pairs:
        keep, gone = sorted((home[i], home[j]))
        if keep != gone:
            for branch in members[gone]:
                home[branch] = keep
            members[keep] += members.pop(gone)
    return [tuple(sorted(found)) for _, found in sorted(members.items()) if len(found) > 1]


def _problem(members: tuple[int, ...], wins: dict[Pair, tuple[float, float]]) -> Problem:
    position = {branch: at for at, branch in enumerate(members)}
    own = {(position[i], position[j]): won for (i, j), won in wins.items() if i in position}
    size = len(members)
    sparse = size <= LARGEST and own.keys() <= set(ring(size))
    ahead, behind = zip(*(own.get(pair, (0.0, 0.0)) for pair in _pairs(size, sparse)), strict=True)
    return Problem(size, sparse, array("d", ahead), array("d", behind))


@lru_cache(maxsize=64)
def _pairs(n: int, sparse: bool) -> tuple[Pair, ...]:
    """The pairs whose wins a problem lists."""
    return ring(n) if sparse and n <= LARGEST else tuple(combinations(range(n), 2))


@lru_cache(maxsize=64)
def _all(n: int) -> tuple[int, ...]:
    return tuple(range(n))
