"""Round floats to nine significant digits before they are written, compared or hashed.

Two machines may differ in the last bits of a sum; no reader uses those bits. Rounding before a number is written,
compared with a threshold or hashed makes "the same bytes" a promise that can be kept.
"""

from functools import lru_cache
from math import isfinite


@lru_cache(maxsize=4096)  # most numbers are shares of a few things: they come again and again
def nine(x: float) -> float:
    """Round to nine significant digits; -0.0 becomes 0.0. NaN and infinities have no JSON form: ValueError."""
    if not isfinite(x):
        raise ValueError(f"{x!r} is not a finite number and cannot be written; leave the value out (None) instead.")
    # The decimal conversion rounds correctly everywhere (the nearest, ties to even); + 0.0 removes the sign of zero.
    return float(f"{x:.9g}") + 0.0
