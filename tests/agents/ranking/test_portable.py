"""exp in basic operations."""

import math
import random

import numpy as np
import pytest

from agents.ranking.portable import exponential_array, exponentials

VALUES = [random.Random(1).uniform(-600.0, 600.0) for _ in range(2000)] + [
    random.Random(2).gauss(0, 2) for _ in range(2000)
]


def test_exp_is_accurate() -> None:
    """It agrees with the C library's within 2e-15."""
    assert exponentials(VALUES) == pytest.approx([math.exp(x) for x in VALUES], rel=2e-15, abs=0.0)


def test_one_and_many_have_the_same_bits() -> None:
    """Floats and arrays give the same bits."""
    assert exponential_array(np.array(VALUES)).tolist() == exponentials(VALUES)


def test_zero_gives_exactly_one() -> None:
    """Equal branches have strengths of exactly 1."""
    assert exponentials([0.0, -0.0]) == [1.0, 1.0]
