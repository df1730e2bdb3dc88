"""Corrections of several p values, and conformal intervals: small functions of plain numbers."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p: the chance of a single false finding stays below the level. Never below the raw p."""
    found, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        found[place] = highest
    return found


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's adjusted p: the share of false findings stays below the level. Never below the
    raw p.
    """
    found, lowest, n = [0.0] * len(values), 1.0, len(values)
    ordered = sorted(range(n), key=values.__getitem__)
    for rank in range(n, 0, -1):
        place = ordered[rank - 1]
        lowest = min(lowest, max(values[place], n * values[place] / rank))
        found[place] = lowest
    return found


class Conformal(NamedTuple):
    """The half-width of a split-conformal interval."""

    n: int
    k: int
    """The rank of the residual, counted from the smallest."""
    q: float | None
    """The half-width; None when there are too few residuals for this alpha."""


def conformal(residuals: Sequence[float], alpha: Fraction) -> Conformal:
    """Return the k-th smallest residual, k = ceil((n + 1)(1 - alpha)), without interpolation. Alpha is an exact
    fraction, so k is exact, too.
    """
    n = len(residuals)
    k = ceil((n + 1) * (1 - alpha))
    ordered = sorted(abs(value) for value in residuals)
    return Conformal(n, k, ordered[k - 1] if 1 <= k <= n else None)
