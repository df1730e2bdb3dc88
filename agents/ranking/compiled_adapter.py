"""Fits by compiled code, if the package was installed on a machine with a C compiler; else by `newton.in_python`."""

from array import array

from agents.ranking import newton
from agents.ranking.newton import Problem, Rules, Solution, Way, in_python

try:
    from agents.ranking._newton import fit
except ImportError:
    COMPILED = False
else:
    COMPILED = True

WAY: Way = fit if COMPILED else in_python
"""The implementation of fits."""


def solve(problem: Problem, ridge: float) -> Solution:
    """Fit all groups of a problem. Raises ArithmeticError for a problem without a maximum."""
    n, pairs, ahead, behind = problem
    groups = 2 * len(ahead) // len(pairs)
    found = Solution(*[array("d", bytes(8 * groups * entries)) for entries in (n, n, n * (n + 1) // 2)])
    rules = Rules(ridge, newton.TOLERANCE, newton.NOISE, newton.BOLD, newton.CAREFUL, newton.PATIENCE, newton.ROUNDS)
    if not WAY(n, groups, pairs, ahead, behind, *found, rules):
        raise ArithmeticError(newton.NO_MAXIMUM)
    return found
