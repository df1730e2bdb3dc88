"""Bradley-Terry scores of the branches of one tier, with how sure they are.

`fit` takes the wins of each pair and gives each branch a score theta, such that i beats j with probability
sigma(theta_i - theta_j), and the covariance of the scores. Branches that no chain of comparisons connects are not
compared: each connected component is a fit of its own, and a branch without comparisons has no score. The same wins
give the same bits, alone (`fit`) or among others (`fit_many`), in any order of the observations.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import erfc, sqrt
from typing import Final, NamedTuple

from agents.ranking.compiled_adapter import solve
from agents.ranking.newton import Floats, Ints, Problem, Solution

Pair = tuple[int, int]

RIDGE = 0.1
"""Lambda of the penalty (lambda / 2) theta^2: a branch that wins everything gets a finite score."""

SMALLEST_RIDGE, LARGEST_RIDGE = 1e-4, 1e4
"""Below, standard errors are differences of large numbers and lose most digits; above, all scores are zero."""

MOST_WEIGHT = 1e6
"""Of one observation."""

SQRT2 = sqrt(2.0)

AT_ONCE = 1024
"""Groups that are fitted in one call, so that their numbers stay near."""


_NOBODY: Final = array("d")
"""Wins of no pair; never written to."""


class Observation(NamedTuple):
    """One valid judge call: a win is 1 and 0, a tie 0.5 and 0.5."""

    i: int
    """A branch, 0 .. n - 1."""
    j: int
    """Another one."""
    i_wins: float
    j_wins: float


class Group(NamedTuple):
    """The wins between n branches that may be compared with each other. `tally` makes it."""

    n: int
    pairs: tuple[Pair, ...]
    """(i, j) with i < j: the pairs that were compared, each once, sorted."""
    ahead: Floats
    """For each pair the wins of i; a tie is half a win."""
    behind: Floats
    """For each pair the wins of j."""


class Component:
    """Branches that comparisons connect. Their scores add up to zero."""

    __slots__ = ("members", "ridge", "solution")

    def __init__(self, members: tuple[int, ...], solution: Solution, ridge: float) -> None:
        self.members = members
        """The branches, ascending; the solution is in this order."""
        self.solution = solution
        self.ridge = ridge

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Component) and (self.members, self.solution, self.ridge) == (
            other.members, other.solution, other.ridge,
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def score(self, a: int) -> float:
        """Theta of a member, by position."""
        return self.solution.theta[a]

    def covariance(self, a: int, b: int) -> float:
        """C_ab of C = P (H + ridge I)^-1 P. All ones is an eigenvector of H + ridge I, so P subtracts 1 / (n ridge)."""
        return self.solution.inverse[_entry(a, b)] - 1.0 / (len(self.members) * self.ridge)

    def se(self, a: int) -> float:
        """The score's standard error, sqrt(C_aa)."""
        return sqrt(max(self.covariance(a, a), 0.0))

    def judge_score(self, a: int) -> float:
        """Ten times the mean probability of beating another member: 5 when all are equal."""
        return 10.0 * self.solution.shares[a] / (len(self.members) - 1)

    def variance(self, a: int, b: int) -> float:
        """C_aa + C_bb - 2 C_ab of two members by position. The projection P drops out of differences."""
        z = self.solution.inverse
        return z[_entry(a, a)] + z[_entry(b, b)] - 2.0 * z[_entry(a, b)]

    def probability(self, a: int, b: int) -> float:
        """Phi(delta / its standard error) of two members by position."""
        theta = self.solution.theta
        return beats(theta[a] - theta[b], self.variance(a, b))


class Fit:
    """The estimate that follows from the wins of one group. Floats are as computed: `nine` rounds those that leave the
    ranking.
    """

    __slots__ = ("components", "n", "ridge")

    def __init__(self, n: int, ridge: float, components: tuple[Component, ...]) -> None:
        self.n = n
        self.ridge = ridge
        self.components = components
        """Those of two branches or more, by their lowest branch."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fit) and (self.n, self.ridge, self.components) == (
            other.n, other.ridge, other.components,
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def place(self, branch: int) -> tuple[Component, int] | None:
        """The component of a branch and its position there; None if it was compared with no other."""
        for component in self.components:
            if branch in component.members:
                return component, component.members.index(branch)
        return None

    def score(self, branch: int) -> float | None:
        """Theta."""
        place = self.place(branch)
        return None if place is None else place[0].score(place[1])

    def se(self, branch: int) -> float | None:
        """The score's standard error."""
        place = self.place(branch)
        return None if place is None else place[0].se(place[1])

    def covariance(self, i: int, j: int) -> float | None:
        """C_ij; None if the branches are not comparable."""
        both = self._both(i, j)
        return None if both is None else both[0].covariance(both[1], both[2])

    def judge_score(self, branch: int) -> float | None:
        """Ten times the mean probability of beating another member of its component."""
        place = self.place(branch)
        return None if place is None else place[0].judge_score(place[1])

    def probability(self, i: int, j: int) -> float | None:
        """Probability that i is really better than j. None if they are not comparable, or the same."""
        both = self._both(i, j)
        return None if both is None or i == j else both[0].probability(both[1], both[2])

    def _both(self, i: int, j: int) -> tuple[Component, int, int] | None:
        first, second = self.place(i), self.place(j)
        if first is None or second is None or first[0] is not second[0]:
            return None
        return first[0], first[1], second[1]


def tally(n: int, observations: Iterable[Observation]) -> Group:
    """Add up observations, in sorted order, so that their original order has no effect."""
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
    if not wins:
        return Group(n, (), _NOBODY, _NOBODY)
    pairs = tuple(sorted(wins))
    return Group(n, pairs, array("d", [wins[pair][0] for pair in pairs]), array("d", [wins[pair][1] for pair in pairs]))


def fit(group: Group, ridge: float = RIDGE) -> Fit:
    """Fit one group."""
    _check(ridge)
    found = [Component(part.members, solve(part.problem([group]), ridge), ridge) for part in _parts(group.pairs)]
    return Fit(group.n, ridge, tuple(found))


def fit_many(groups: Iterable[Group], ridge: float = RIDGE) -> list[Fit]:
    """Fit many groups, groups with the same pairs together: each result is the same as that of `fit`, to the bit."""
    _check(ridge)
    groups = list(groups)
    alike: dict[tuple[Pair, ...], list[int]] = {}
    for number, group in enumerate(groups):
        alike.setdefault(group.pairs, []).append(number)
    found: list[list[Component]] = [[] for _ in groups]
    for pairs, numbers in alike.items():
        for first in range(0, len(numbers), AT_ONCE):
            some = numbers[first : first + AT_ONCE]
            for part in _parts(pairs):
                solutions = _each(solve(part.problem([groups[number] for number in some]), ridge), len(some))
                for number, solution in zip(some, solutions, strict=True):
                    found[number].append(Component(part.members, solution, ridge))
    return [Fit(group.n, ridge, tuple(components)) for group, components in zip(groups, found, strict=True)]


class _Part(NamedTuple):
    """A component, before anything is fitted."""

    members: tuple[int, ...]
    pairs: Ints
    """Pairs as positions among the members."""
    places: tuple[int, ...] | None
    """Indexes of its pairs among those of the group; None: it has all of them."""

    def problem(self, groups: Sequence[Group]) -> Problem:
        """The wins within the component, in groups that have the same pairs."""
        ahead, behind = array("d"), array("d")
        for group in groups:
            if self.places is None:
                ahead += group.ahead
                behind += group.behind
            else:
                ahead.extend([group.ahead[at] for at in self.places])
                behind.extend([group.behind[at] for at in self.places])
        return Problem(len(self.members), self.pairs, ahead, behind)


@lru_cache(maxsize=256)
def _parts(pairs: tuple[Pair, ...]) -> tuple[_Part, ...]:
    """The components of two branches or more, by their lowest branch. Cached, because judges ask about the same pairs
    again and again.
    """
    home: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for branch in sorted({branch for pair in pairs for branch in pair}):
        home[branch], members[branch] = branch, [branch]
    for i, j in pairs:
        keep, gone = sorted((home[i], home[j]))
        if keep != gone:
            for branch in members[gone]:
                home[branch] = keep
            members[keep] += members.pop(gone)
    parts = []
    for first, inside in sorted(members.items()):
        position = {branch: at for at, branch in enumerate(sorted(inside))}
        places = tuple([at for at, (i, _) in enumerate(pairs) if home[i] == first])
        own = array("i", [position[branch] for at in places for branch in pairs[at]])
        parts.append(_Part(tuple(position), own, None if len(places) == len(pairs) else places))
    return tuple(parts)


def _each(solution: Solution, groups: int) -> list[Solution]:
    """The solutions of single groups."""
    theta, shares, inverse = solution
    n, entries = len(theta) // groups, len(inverse) // groups
    return [
        Solution(
            theta[at * n : at * n + n], shares[at * n : at * n + n], inverse[at * entries : at * entries + entries]
        )
        for at in range(groups)
    ]


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


def _entry(a: int, b: int) -> int:
    """Index of row max(a, b), column min(a, b) of a lower triangle."""
    return a * (a + 1) // 2 + b if a >= b else b * (b + 1) // 2 + a
