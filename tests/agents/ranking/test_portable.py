"""exp in basic operations."""

import math
import random

import numpy as np
import pytest

from agents.ranking.portable import GROWTH, exponential_array, exponentials, grown, grown_array

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


STEPS = [random.Random(3).uniform(-2.0, 2.0) for _ in range(2000)] + [
    random.Random(4).gauss(0, 1e-4) for _ in range(2000)
]


def test_a_short_step_is_accurate() -> None:
    """Times exp of a step up to 2 either way, within 2e-14."""
    ones = [1.0] * len(STEPS)
    assert grown(ones, STEPS) == pytest.approx([math.exp(x) for x in STEPS], rel=2e-14, abs=0.0)
    assert grown([3.0], [0.0]) == [3.0]


def test_one_and_many_and_straight_line_code_step_alike() -> None:
    """Floats, arrays and the lines that are put into code give the same bits."""
    strengths = exponentials([random.Random(5).gauss(0, 2) for _ in STEPS])
    found = grown(strengths, STEPS)
    assert grown_array(np.array(strengths), np.array(STEPS)).tolist() == found
    lines = "\n".join(line.format(step="step", strength="strength") for line in GROWTH)
    for strength, step, expected in zip(strengths[:200], STEPS, found, strict=False):
        names = {"strength": strength, "step": step}
        exec(lines, names)
        assert names["strength"] == expected
