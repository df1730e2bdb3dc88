"""Statistics of graded items: two systems with a mean score each for every item.

Differences are clustered by item. Random numbers come from Python's `random.Random(0)`, in sequence, and sums
follow the order of the draw, so the same differences give the same numbers on every machine.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import fsum, sqrt
from operator import add
from random import Random
from typing import NamedTuple

from agents.audit.paired import Bootstrap, Interval
from agents.ranking.statistics import Z95

DRAWS = 10_000
LOW_AT, HIGH_AT = 250, 9750
"""The ranks of the interval's bounds among the sorted draws, counted from 1."""
EXACT_TO = 16
"""Up to this number of items that differ, every sign pattern is tried."""
SLACK = 1e-12
"""A sum that is smaller than the observed one by at most this counts as equally large."""


class Graded(NamedTuple):
    """How the item scores of two systems differ."""

    mean: float
    se: float | None
    """None for fewer than two items."""
    interval: Interval | None
    """The normal 95 % interval."""
    bootstrap: Bootstrap
    sign_flip_p: float


def graded(differences: Sequence[float]) -> Graded:
    """Compare the items; there is at least one. Items are ordered by id."""
    n = len(differences)
    mean, random = fsum(differences) / n, Random(0).random  # noqa: S311 - reproducible on purpose
    se = clustered_se(differences)
    interval = None if se is None else Interval(mean - Z95 * se, mean + Z95 * se)
    draws = []
    for _ in range(DRAWS):
        draws.append(reduce(add, [differences[int(random() * n)] for _ in range(n)], 0.0) / n)  # noqa: PERF401
    down, up = sum(draw <= 0 for draw in draws), sum(draw >= 0 for draw in draws)
    draws.sort()
    found = Bootstrap(draws[LOW_AT - 1], draws[HIGH_AT - 1], min(1.0, 2 * min(down, up) / DRAWS))
    return Graded(mean, se, interval, found, _sign_flip([value for value in differences if value != 0], random))


def clustered_se(scores: Sequence[float]) -> float | None:
    """Return the standard error of the mean of item scores; None for fewer than two scores."""
    n = len(scores)
    if n < 2:
        return None
    mean = fsum(scores) / n
    return sqrt(fsum((score - mean) ** 2 for score in scores) / (n - 1)) / sqrt(n)


def _sign_flip(values: Sequence[float], random: Callable[[], float]) -> float:
    """Return how often random signs give a sum at least as large. Few items are computed exactly, others by draws of
    the same generator.
    """
    observed = abs(reduce(add, values, 0.0)) - SLACK
    if len(values) <= EXACT_TO:
        hits = sum(abs(total) >= observed for total in _signed_sums(values))
        return hits / (1 << len(values))
    hits = 0
    for _ in range(DRAWS):
        hits += abs(reduce(add, [-value if random() < 0.5 else value for value in values], 0.0)) >= observed
    return (hits + 1) / (DRAWS + 1)


def _signed_sums(values: Sequence[float]) -> list[float]:
    """Return the sums of all sign patterns."""
    sums = [0.0]
    for value in values:
        sums = [total + signed for total in sums for signed in (value, -value)]
    return sums
