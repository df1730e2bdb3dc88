"""exp of a float, made of additions, multiplications and divisions only; and one for short steps.

IEEE 754 fixes the result of every basic operation to the last bit, but not that of any library's exp: those differ
between C libraries and processors. With this function a fit gives the same bits on every machine. The relative error is
below 2e-15 for |x| <= 600. `_newton.c` has the same function.
"""

from math import ldexp

INVERSE_LN2 = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
"""ln 2 to 33 bits: times a small integer it is exact."""
LN2_LOW = 1.90821492927058770002e-10
"""The low part of ln 2."""


def exponential(x: float) -> float:
    """2^k exp(r) with |r| <= ln(2) / 2, and exp(r) by its Pade approximant of order [5/5].

    That is (even + odd) / (even - odd) with integer coefficients; its own error is below 1e-15 there.
    """
    k = round(x * INVERSE_LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    square = r * r
    even = 30240.0 + square * (3360.0 + square * 30.0)
    odd = r * (15120.0 + square * (420.0 + square))
    return ldexp((even + odd) / (even - odd), k)


def grown(strength: float, step: float) -> float:
    """A strength times exp of a step, for steps up to 2 either way, where 32 short steps need no reduction.

    exp(x / 32) by its Pade approximant of order [4/4], squared five times: the relative error is below 2e-14.
    """
    x = step * 0.03125
    square = x * x
    even = 1680.0 + square * (180.0 + square)
    x = x * (840.0 + 20.0 * square)
    y = (even + x) / (even - x)
    y = y * y
    y = y * y
    y = y * y
    y = y * y
    return strength * (y * y)
