"""Rounding of what leaves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.numbers import nine


@pytest.mark.parametrize(
    ("x", "rounded"),
    [(1 / 3, 0.333333333), (2e9 / 3, 666666667.0), (1.0, 1.0), (123456789.5, 123456790.0), (-2 / 3e-7, -6666666.67)],
)
def test_nine_significant_digits(x: float, rounded: float) -> None:
    """Nine significant digits are kept, wherever the point is."""
    assert nine(x) == rounded


def test_negative_zero_becomes_zero() -> None:
    """-0.0 has the same bytes as 0.0."""
    assert math.copysign(1.0, nine(-0.0)) == 1.0


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf])
def test_what_has_no_json_form_is_refused(x: float) -> None:
    """NaN and infinities are errors."""
    with pytest.raises(ValueError, match="not a finite number"):
        nine(x)


@given(st.floats(allow_nan=False, allow_infinity=False, max_value=1e307, min_value=-1e307))
def test_rounding_twice_changes_nothing(x: float) -> None:
    """It is idempotent, odd, and off by at most half a unit of the ninth digit."""
    assert nine(nine(x)) == nine(x) == -nine(-x)
    assert abs(nine(x) - x) <= 5.0000001e-9 * abs(x)
