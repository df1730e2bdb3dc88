"""Statistics of paired outcomes: two systems, each with one yes-or-no answer to every item.

Everything follows from four counts (`Pairs`). The bootstrap is exact: the distribution of a resampled difference is
computed by convolution, not drawn. Swapping the two sides mirrors every number. An undefined number is None, never
0.
"""

from collections.abc import Sequence
from math import ceil, comb, sqrt
from operator import mul
from typing import NamedTuple

from agents.ranking.statistics import Z95, mcnemar, wilson

Z_ALPHA = Z95
"""The normal quantile of a two-sided level of 5 %."""
Z_POWER = 0.8416212335729143
"""The normal quantile of a power of 80 %."""
LOW, HIGH = 0.025, 0.975
NEGLIGIBLE = 1e-25
"""Smaller probabilities at the ends of a distribution are dropped. Their sum is far below the last
digit of a result."""


class Pairs(NamedTuple):
    """How often two systems, A and B, were right about the same items."""

    both: int
    b: int
    """The number of items that only A answered correctly."""
    c: int
    """The number of items that only B answered correctly."""
    neither: int

    @property
    def n(self) -> int:
        """The number of items that both answered."""
        return self.both + self.b + self.c + self.neither


class Interval(NamedTuple):
    """The lower and upper bound of a value."""

    low: float
    high: float


class Bootstrap(NamedTuple):
    """A percentile interval of a difference, and the two-sided p of no difference."""

    low: float
    high: float
    p: float


def mid_p(b: int, c: int) -> float:
    """Return McNemar's mid-p: the observed outcome counts half. It is 1 if there are no discordant pairs."""
    if b + c == 0:
        return 1.0
    seen = comb(b + c, b) / (1 << (b + c))
    return 1.0 - seen / 2 if b == c else mcnemar(b, c) - seen


def newcombe(pairs: Pairs) -> Interval:
    """Return the 95 % interval of rate B - rate A by Newcombe's method 10, for n > 0. It never leaves -1..1."""
    n, (both, b, c, _) = pairs.n, pairs
    rate_a, rate_b = (both + b) / n, (both + c) / n
    (low_a, high_a), (low_b, high_b) = wilson(both + b, n), wilson(both + c, n)
    phi = _phi(pairs)
    delta = (c - b) / n
    below_b, above_b, below_a, above_a = rate_b - low_b, high_b - rate_b, rate_a - low_a, high_a - rate_a
    return Interval(max(-1.0, delta - _joined(below_b, above_a, phi)), min(1.0, delta + _joined(above_b, below_a, phi)))


def _joined(one: float, other: float, phi: float) -> float:
    """Return the half-width of a difference from the half-widths of its two sides; symmetric."""
    return sqrt(max(0.0, one * one + other * other - 2 * phi * (one * other)))


def _phi(pairs: Pairs) -> float:
    """Return the correlation of the two sides, with Newcombe's correction."""
    both, b, c, neither = pairs
    root = sqrt((both + b) * (c + neither) * (both + c) * (b + neither))
    if not root:
        return 0.0
    x: float = both * neither - b * c
    if x > 0:
        x = max(0.0, x - pairs.n / 2)
    return x / root


def exact_bootstrap(n: int, b: int, c: int) -> Bootstrap:
    """Return the interval and p that infinitely many resamples of the pairs would give, for n > 0."""
    if b > c:  # compute one orientation only, so that swapping the sides mirrors every digit
        low, high, p = exact_bootstrap(n, c, b)
        return Bootstrap(0.0 - high, 0.0 - low, p)
    start, chances = _power_of(Chances(-1, (b / n, (n - b - c) / n, c / n)), n)
    at_most, at_least, low_at, high_at = 0.0, 0.0, start, start
    total = 0.0
    for place, chance in enumerate(chances, start):
        total += chance
        low_at = place + 1 if total < LOW else low_at
        high_at = place + 1 if total < HIGH else high_at
        at_most += chance if place <= 0 else 0.0
        at_least += chance if place >= 0 else 0.0
    return Bootstrap(low_at / n, high_at / n, min(1.0, 2 * min(at_most, at_least)))


class Chances(NamedTuple):
    """The probabilities of consecutive whole numbers."""

    start: int
    """The first of the consecutive numbers."""
    values: Sequence[float]


def _power_of(one: Chances, n: int) -> Chances:
    """Return the distribution of the sum of n independent draws, by repeated squaring."""
    result = Chances(0, (1.0,))
    while n:
        if n & 1:
            result = _sum_of(result, one)
        n >>= 1
        if n:
            one = _sum_of(one, one)
    return result


def _sum_of(one: Chances, other: Chances) -> Chances:
    """Return the distribution of the sum of two variables, without negligible probabilities at its ends."""
    short, long = sorted((one.values, other.values), key=len)
    reverse, size = short[::-1], len(short)
    padded = (*(0.0,) * (size - 1), *long, *(0.0,) * (size - 1))
    values = [sum(map(mul, reverse, padded[at : at + size])) for at in range(len(long) + size - 1)]
    first = next((at for at, value in enumerate(values) if value > NEGLIGIBLE), 0)
    last = next((at for at in range(len(values), 0, -1) if values[at - 1] > NEGLIGIBLE), len(values))
    return Chances(one.start + other.start + first, values[first:last])


def min_detectable(n: int, psi: float) -> float | None:
    """Return Connor's smallest difference that n pairs show with a power of 80 %, if psi of them are discordant.

    None if no difference can be detected: it would exceed all discordant pairs, or there are none.
    """
    inner = n - Z_ALPHA**2 + Z_POWER**2
    if psi <= 0 or inner < 0:
        return None
    found = (Z_ALPHA * sqrt(psi * n) + Z_POWER * sqrt(psi * inner)) / (n + Z_POWER**2)
    return None if found > psi else found


def pairs_for(delta: float, psi: float) -> int | None:
    """Return Connor's number of pairs that show a difference with a power of 80 %; None if the difference is 0 or
    exceeds all discordant pairs.
    """
    delta = abs(delta)
    if delta == 0 or delta > psi:
        return None
    return ceil((Z_ALPHA * sqrt(psi) + Z_POWER * sqrt(psi - delta**2)) ** 2 / delta**2)
