"""Newton's method for the penalised Bradley-Terry likelihood of connected branches: one group, or many alike at once.

Maximises L(theta) = sum of wins_ij log sigma(theta_i - theta_j) - (ridge / 2) sum of theta_i^2 over the branches of one
component. One group and a batch do the same operations in the same order, so they give the same bits; nothing depends
on a linear algebra library or on the C library's exp.

Why it always ends at the one maximum: L is strictly concave (the ridge), so a zero gradient is the maximum, whatever
way led there. Full steps from a good start get there in four to seven rounds, each squaring the error. Should they not
within PATIENCE rounds, the search starts again from zero with steps of at most CAREFUL per branch. Then no difference
theta_i - theta_j moves by more than c = 2 CAREFUL, and because |sigma''| <= sigma', curvature along such a step x grows
by a factor of at most e^c. With v = x'Ax > 0 and a share t <= 1 of the step, L rises by at least
v t (1 - (e^c - 1 - c) / c^2) > v t / 9 for c = 1.5: every careful step climbs, and near the maximum steps are full.
"""

from array import array
from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from agents.ranking.large import large
from agents.ranking.portable import Floats, Vector, exponential_array, exponentials, grown, grown_array
from agents.ranking.unrolled import LARGEST, Results, unrolled

TOLERANCE = 1e-10
"""The last step moves no score by more. The error left is its square; the covariance is taken where that step began."""

NOISE = 1e-15
"""A gradient over m comparisons is known to about this times m, so a step to this times m / ridge. With a hundred
thousand comparisons that is more than the tolerance, and takes its place."""

BOLD = 2.0
"""Longest step of a branch at first: exp must not overflow on the way, and `grown` is good to here."""

PATIENCE = 16
"""Rounds of bold steps. With ridge 0.1 they took 8 at most for 20,000 random groups of 2 to 16 branches."""

CAREFUL = 0.75
"""Longest step of a branch after that; see above."""

ROUNDS = 10_000
"""In all; 233 were the most ever seen (a strict order of 16 with a million wins a pair and ridge 1e-6). With ridge 0.1 a careful
step that is cut short raises L by 0.006 or more, and L begins at -0.7 per comparison."""

BATCH = 2048
"""Groups in one batch: an operation on so many floats costs numpy little more than one on a single float."""

NO_MAXIMUM = f"no maximum after {ROUNDS} rounds: choose a larger ridge for so many comparisons"


class Problem(NamedTuple):
    """Connected branches, numbered from 0, and who won between them."""

    size: int
    sparse: bool
    """Whether all compared pairs are in the ring (see `unrolled.ring`), whose code is shorter."""
    ahead: Floats
    """For each pair (i, j), i < j, of the ring or of all pairs, sorted: wins of i, a tie being half a win."""
    behind: Floats
    """Wins of j."""


class Solution(NamedTuple):
    """The maximum and the curvature there."""

    theta: list[float]
    shares: list[float]
    """For each branch the sum over the others of sigma(theta_i - theta_j)."""
    inverse: Floats
    """The lower triangle of (H + ridge I)^-1, by rows."""


def solve(problem: Problem, ridge: float) -> Solution:
    """Fit one group."""
    n, sparse, ahead, behind = problem
    _, begin, newton, climb, finish = unrolled(n, sparse) if n <= LARGEST else large(n)
    begun = begin(ahead, behind, sqrt)
    theta, wins, counts = list(begun[:n]), begun[n : n + n], begun[n + n : -1]
    strengths = exponentials(theta)
    tolerance = TOLERANCE + begun[-1] * (NOISE / ridge)
    if climb is not None:
        # Nearly always. What is too far or too long for it begins again below, with the same steps.
        there = climb(theta, strengths, wins, counts, ridge, tolerance, BOLD, min(PATIENCE, ROUNDS))
        if there is not None:
            return _solution(list(there[:n]), finish(there[n : n + n], there[n + n :]))
    for done in range(ROUNDS):
        if done == PATIENCE:
            theta, strengths = [0.0] * n, [1.0] * n
        found = newton(theta, strengths, wins, counts, ridge)
        step = found[:n]
        longest = max(*step, -min(step))
        limit = BOLD if done < PATIENCE else CAREFUL
        if longest > limit:
            cut = limit / longest
            step = tuple([x * cut for x in step])
        theta = [t + x for t, x in zip(theta, step, strict=True)]
        strengths = grown(strengths, step)
        if longest < tolerance:
            return _solution(theta, finish(strengths, found[n:]))
    raise ArithmeticError(NO_MAXIMUM)


def _solution(theta: list[float], finished: Results) -> Solution:
    n = len(theta)
    return Solution(theta, list(finished[:n]), array("d", finished[n:]))


def solve_alike(problems: Sequence[Problem], ridge: float) -> list[Solution]:
    """Fit groups that have the same size and are all sparse or all not: the bits of `solve`, many times faster."""
    if problems[0].size > LARGEST:
        return [solve(problem, ridge) for problem in problems]
    solutions: list[Solution] = []
    for first in range(0, len(problems), BATCH):
        solutions += _solve_batch(problems[first : first + BATCH], ridge)
    return solutions


def _solve_batch(problems: Sequence[Problem], ridge: float) -> list[Solution]:
    """`solve` with an array of groups in the place of each number."""
    n, sparse, _, _ = problems[0]
    _, begin, newton, _, finish = unrolled(n, sparse)
    begun = begin(_columns([p.ahead for p in problems]), _columns([p.behind for p in problems]), np.sqrt)
    start = np.stack(begun[:n])
    wins_and_counts = np.stack(begun[n:-1])
    tolerance = TOLERANCE + begun[-1] * (NOISE / ridge)

    def step_at(theta: Vector, strengths: Vector, given: Vector) -> Results:
        return newton(theta, strengths, given[:n], given[n:], ridge)

    theta, strengths = _climb(step_at, start, wins_and_counts, tolerance)
    found = step_at(theta, strengths, wins_and_counts)
    step = np.stack(found[:n])
    theta = theta + step
    finished = finish(grown_array(strengths, step), found[n:])
    inverses, width = np.stack(finished[n:]).T.tobytes(), 8 * len(finished[n:])
    rows = enumerate(zip(theta.T.tolist(), np.stack(finished[:n]).T.tolist(), strict=True))
    return [
        Solution(scores, shares, array("d", inverses[at * width : (at + 1) * width])) for at, (scores, shares) in rows
    ]


def _climb(
    step_at: Callable[[Vector, Vector, Vector], Results], theta: Vector, given: Vector, tolerance: Vector
) -> tuple[Vector, Vector]:
    """Where the last step of each group begins: theta and exp theta. A group leaves the batch when it is there."""
    n = len(theta)
    strengths = exponential_array(theta)
    last = np.empty((2, *theta.shape))
    groups = np.arange(theta.shape[1])
    for done in range(ROUNDS):
        if done == PATIENCE:
            theta, strengths = np.zeros_like(theta), np.ones_like(theta)
        step = np.stack(step_at(theta, strengths, given)[:n])
        longest = np.abs(step).max(axis=0)
        there = longest < tolerance
        last[0, :, groups[there]], last[1, :, groups[there]] = theta[:, there].T, strengths[:, there].T
        limit = BOLD if done < PATIENCE else CAREFUL
        if there.all():
            return last[0], last[1]
        step = step * (limit / np.maximum(longest, limit))
        theta, strengths = theta + step, grown_array(strengths, step)
        if there.any():
            theta, given = theta.compress(~there, axis=1), given.compress(~there, axis=1)
            strengths = strengths.compress(~there, axis=1)
            tolerance, groups = tolerance[~there], groups[~there]
    raise ArithmeticError(NO_MAXIMUM)


def _columns(rows: list[Floats]) -> Vector:
    """One row for each pair, one column for each group, rows contiguous."""
    return np.ascontiguousarray(np.frombuffer(b"".join(rows)).reshape(len(rows), -1).T)
