"""exp for floats or for a whole array, made of additions, multiplications and divisions only; and one for short steps.

IEEE 754 fixes the result of every basic operation to the last bit, and of no library's exp: those differ between C
libraries, processors, and between a scalar and a vector call. With this one a fit gives the same bits for one group and
for a batch, on every machine. The relative error is below 2e-15 for |x| <= 600.
"""

from array import array
from collections.abc import Sequence
from math import ldexp
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Floats: TypeAlias = "array[float]"
"""Floats of one group, packed: a batch of them is one copy."""

INVERSE_LN2 = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
"""ln 2 to 33 bits: times a small integer it is exact."""
LN2_LOW = 1.90821492927058770002e-10
"""The rest of ln 2."""

# exp(x) = 2^k exp(r) with |r| <= ln(2) / 2, and exp(r) by its Pade approximant of order [5/5], which is
# (even + odd) / (even - odd) with whole-number coefficients. The approximant's own error is below 1e-15 there.


def exponentials(values: list[float]) -> list[float]:
    """Exp of each value."""
    results = []
    for x in values:
        k = round(x * INVERSE_LN2)
        r = (x - k * LN2_HIGH) - k * LN2_LOW
        square = r * r
        even = 30240.0 + square * (3360.0 + square * 30.0)
        odd = r * (15120.0 + square * (420.0 + square))
        results.append(ldexp((even + odd) / (even - odd), k))
    return results


GROWTH = (
    "x = {step} * 0.03125; square = x * x; even = 1680.0 + square * (180.0 + square); x = x * (840.0 + 20.0 * square)",
    "y = (even + x) / (even - x); y = y * y; y = y * y; y = y * y; y = y * y; {strength} = {strength} * (y * y)",
)
"""The lines of `grown` for one name, to be put into straight-line code."""


def grown(strengths: list[float], steps: Sequence[float]) -> list[float]:
    """Each strength times exp of its step, for steps up to 2 either way, where 32 short steps need no reduction.

    exp(x / 32) by its Pade approximant of order [4/4], squared five times: the relative error is below 2e-14.
    """
    results = []
    for strength, step in zip(strengths, steps, strict=True):
        x = step * 0.03125
        square = x * x
        even = 1680.0 + square * (180.0 + square)
        x = x * (840.0 + 20.0 * square)
        y = (even + x) / (even - x)
        y = y * y
        y = y * y
        y = y * y
        y = y * y
        results.append(strength * (y * y))
    return results


def grown_array(strengths: Vector, steps: Vector) -> Vector:
    """The same for each element."""
    x = steps * 0.03125
    square = x * x
    even = 1680.0 + square * (180.0 + square)
    x = x * (840.0 + 20.0 * square)
    y: Vector = (even + x) / (even - x)
    for _ in range(4):
        y = y * y
    return strengths * (y * y)


def exponential_array(x: Vector) -> Vector:
    """Exp of each element, with the same operations in the same order."""
    k = np.rint(x * INVERSE_LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    square = r * r
    even = 30240.0 + square * (3360.0 + square * 30.0)
    odd = r * (15120.0 + square * (420.0 + square))
    # 2^k by its bits: a float's exponent field holds k + 1023.
    power: Vector = ((k.astype(np.int64) + 1023) << 52).view(np.float64)
    return (even + odd) / (even - odd) * power
