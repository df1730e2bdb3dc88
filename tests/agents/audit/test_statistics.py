"""The statistics of paired outcomes and graded items: the stated figures, and what must hold of all figures."""

import json
import re
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.audit.adjustment import benjamini_hochberg, conformal, holm
from agents.audit.graded import graded
from agents.audit.paired import Pairs, exact_bootstrap, mid_p, min_detectable, newcombe, pairs_for
from agents.ranking.statistics import mcnemar, wilson
from tests.conformance import conformance

CLOSE = 1e-8
counts = st.integers(0, 60)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def told(name: str) -> dict[str, Any]:
    """A line of the page of facts."""
    found = re.search(rf"^    {name}: (.*)$", conformance("audit", "AUDIT-FACTS.md").read_text(), re.MULTILINE)
    assert found is not None, name
    value: dict[str, Any] = json.loads(found[1])
    return value


def key(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", text))


def test_the_stated_figures_come_out() -> None:
    """McNemar, Newcombe and the exact bootstrap, to 1e-8."""
    for pair, figures in told("mcnemar").items():
        assert [mcnemar(*key(pair)), mid_p(*key(pair))] == pytest.approx(figures, abs=CLOSE)
    for pairs, figures in told(r"newcombe \(both, b, c, neither\)").items():
        assert [*newcombe(Pairs(*key(pairs)))] == pytest.approx(figures, abs=CLOSE)
    for pairs, figures in told(r"exact_bootstrap \(n, b, c\)").items():
        assert [*exact_bootstrap(*key(pairs))] == pytest.approx(figures, abs=CLOSE)


def test_power_is_as_stated_and_none_where_it_is_not_defined() -> None:
    """Connor's formulas."""
    figures = told("power")
    assert min_detectable(199, 56 / 199) == pytest.approx(figures["min_detectable(199, 56/199)"], abs=CLOSE)
    assert min_detectable(1319, 0.2) == pytest.approx(figures["min_detectable(1319, 0.2)"], abs=CLOSE)
    assert min_detectable(20, 0.1) is None
    assert min_detectable(20, 0.0) is None
    assert [pairs_for(*each) for each in ((0.05, 56 / 199), (0.05, 0.1), (0.1, 0.31), (0.2, 0.1))] == [
        882,
        312,
        241,
        None,
    ]


def test_graded_items_are_as_stated() -> None:
    """The seeded bootstrap and the exact sign flips."""
    figures = told("graded d")
    found = graded(figures["d"])
    assert [found.mean, *found.bootstrap, found.sign_flip_p] == pytest.approx(
        [figures["mean"], *figures["seeded"], figures["sign_flip_p"]], abs=CLOSE
    )


def test_adjusted_and_conformal_figures_are_as_stated() -> None:
    """Small examples that can be computed by hand."""
    assert holm((0.01, 0.04, 0.03, 0.005)) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert benjamini_hochberg((0.01, 0.04, 0.03, 0.005)) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    tenth = Fraction(1, 10)
    assert conformal(range(1, 10), tenth).q == 9
    assert conformal(range(1, 9), tenth).q is None
    assert conformal(range(1, 20), tenth).q == 18
    assert conformal(range(1, 20), Fraction(1, 5)).q == 16


@given(counts, counts, counts, counts)
def test_swapping_the_sides_mirrors_every_number(both: int, b: int, c: int, neither: int) -> None:
    """A is to B as B is to A."""
    pairs, swapped = Pairs(both, b, c, neither), Pairs(both, c, b, neither)
    if not pairs.n:
        return
    assert (mcnemar(b, c), mid_p(b, c)) == (mcnemar(c, b), mid_p(c, b))
    one, other = newcombe(pairs), newcombe(swapped)
    assert (one.low, one.high) == (-other.high, -other.low)
    first, second = exact_bootstrap(pairs.n, b, c), exact_bootstrap(pairs.n, c, b)
    assert first.p == second.p
    if b != c:
        assert (first.low, first.high) == (-second.high, -second.low)


@given(counts, counts, counts, counts)
def test_bounds_never_cross_and_never_leave_their_range(both: int, b: int, c: int, neither: int) -> None:
    """Wilson within 0..1, Newcombe within -1..1, each around its estimate."""
    pairs = Pairs(both, b, c, neither)
    if not pairs.n:
        return
    low, high = wilson(both + b, pairs.n)
    assert 0 <= low <= (both + b) / pairs.n <= high <= 1
    interval = newcombe(pairs)
    delta = (c - b) / pairs.n
    assert -1 <= interval.low <= delta + 1e-12
    assert delta - 1e-12 <= interval.high <= 1


@settings(max_examples=3, deadline=None)
@given(st.integers(5, 40), st.integers(0, 12), st.integers(0, 12))
def test_the_exact_bootstrap_is_the_one_that_many_draws_come_to(more: int, b: int, c: int) -> None:
    """Probabilities below the bounds agree with draws to the noise of the draws."""
    n = more + b + c
    found, random = exact_bootstrap(n, b, c), Random(n * 10_000 + b * 100 + c)
    draws = 20_000
    drawn = sorted(_drawn(random, n, b, c) / n for _ in range(draws))
    down, up = sum(each <= 0 for each in drawn) / draws, sum(each >= 0 for each in drawn) / draws
    assert min(1.0, 2 * min(down, up)) == pytest.approx(found.p, abs=0.02)
    assert abs(drawn[int(0.025 * draws)] - found.low) <= 1 / n + 1e-12
    assert abs(drawn[int(0.975 * draws)] - found.high) <= 1 / n + 1e-12


def _drawn(random: Random, n: int, b: int, c: int) -> int:
    cells = random.choices((-1, 0, 1), (b, n - b - c, c), k=n)
    return sum(cells)


@pytest.mark.long
@pytest.mark.parametrize(("n", "b", "c"), [(199, 29, 27), (60, 4, 15)])
def test_the_exact_bootstrap_agrees_with_two_hundred_thousand_draws(n: int, b: int, c: int) -> None:
    """Within 0.005."""
    found, random, draws = exact_bootstrap(n, b, c), Random(1), 200_000
    drawn = [_drawn(random, n, b, c) for _ in range(draws)]
    down, up = sum(each <= 0 for each in drawn) / draws, sum(each >= 0 for each in drawn) / draws
    assert min(1.0, 2 * min(down, up)) == pytest.approx(found.p, abs=0.005)


@given(p_values)
def test_adjusted_p_are_monotone_and_never_below_the_raw(values: list[float]) -> None:
    """In the order of the raw ones, and at most 1."""
    for adjusted in (holm(values), benjamini_hochberg(values)):
        assert all(raw <= found <= 1 for raw, found in zip(values, adjusted, strict=True))
        ordered = [found for _, found in sorted(zip(values, adjusted, strict=True))]
        assert ordered == sorted(ordered)


def test_a_large_log_costs_no_draws() -> None:
    """Many thousand pairs are convolved, too: their p is near that of the normal approximation."""
    found = exact_bootstrap(20_000, 3000, 3100)
    assert found.low < 0.005 < found.high
    assert found.p == pytest.approx(0.2004, abs=0.005)
