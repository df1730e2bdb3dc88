"""exp in basic operations."""

import math
import random

import pytest

from agents.ranking.portable import exponential, grown

VALUES = [random.Random(1).uniform(-600.0, 600.0) for _ in range(2000)] + [
    random.Random(2).gauss(0, 2) for _ in range(2000)
]
STEPS = [random.Random(3).uniform(-2.0, 2.0) for _ in range(2000)] + [
    random.Random(4).gauss(0, 1e-4) for _ in range(2000)
]


def test_exp_is_accurate() -> None:
    """It agrees with the C library's within 2e-15."""
    assert [exponential(x) for x in VALUES] == pytest.approx([math.exp(x) for x in VALUES], rel=2e-15, abs=0.0)


def test_zero_gives_exactly_one() -> None:
    """Equal branches have strengths of exactly 1."""
    assert [exponential(0.0), exponential(-0.0)] == [1.0, 1.0]


def test_a_short_step_is_accurate() -> None:
    """Times exp of a step up to 2 either way, within 2e-14."""
    assert [grown(1.0, x) for x in STEPS] == pytest.approx([math.exp(x) for x in STEPS], rel=2e-14, abs=0.0)
    assert grown(3.0, 0.0) == 3.0
