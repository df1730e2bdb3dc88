"""Intervals, tests and what is said about the judge."""

from itertools import combinations

import pytest
from scipy.stats import binomtest

from agents.ranking.statistics import halves_p, mcnemar, ranking_stats, vote_stats, wilson
from agents.ranking.vote_count import Vote, tie_by_content
from schemas.numbers import nine


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [(8, 2, 0.109375), (25, 5, 0.0003249142), (29, 27, 0.8938530948), (21, 41, 0.0151340810), (0, 0, 1.0), (3, 3, 1.0)],
)
def test_exact_mcnemar_values(b: int, c: int, p: float) -> None:
    """Known values of the exact two-sided test."""
    assert mcnemar(b, c) == pytest.approx(p, abs=5e-11)


def test_exact_mcnemar_is_the_binomial_test() -> None:
    """It is scipy's two-sided binomial test with one half, for all small tables."""
    for b, c in combinations(range(25), 2):
        assert mcnemar(b, c) == pytest.approx(binomtest(b, b + c).pvalue, rel=1e-9)
        assert mcnemar(c, b) == mcnemar(b, c)


def test_mcnemar_of_many_pairs() -> None:
    """Thousands of discordant pairs do not overflow."""
    assert mcnemar(5000, 5001) == pytest.approx(1.0)
    assert 0.0 <= mcnemar(5000, 1) < 1e-300


@pytest.mark.parametrize(
    ("passes", "n", "low", "high"),
    [
        (5, 10, 0.2365930904, 0.7634069096),
        (135, 199, 0.610645, 0.739382),
        (0, 5, 0.0, 0.4344825),
        (5, 5, 0.5655175, 1.0),
    ],
)
def test_wilson_interval_values(passes: int, n: int, low: float, high: float) -> None:
    """Known values; the ends are exact without passes or failures."""
    assert wilson(passes, n) == pytest.approx((low, high), abs=5e-7)


def test_wilson_interval_is_scipys() -> None:
    """It is scipy's Wilson interval."""
    for n in (1, 2, 7, 30):
        for passes in range(n + 1):
            expected = binomtest(passes, n).proportion_ci(method="wilson")
            assert wilson(passes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("passes", "n", "delta"), [(5, 10, 26.3), (1, 2, 40.5)])
def test_min_detectable_delta(passes: int, n: int, delta: float) -> None:
    """The half-width in percentage points, to one decimal."""
    assert ranking_stats([True] * passes + [False] * (n - passes), []).min_detectable_delta_pp == delta


@pytest.mark.parametrize(("passes", "n", "powered"), [(9, 9, False), (10, 10, True), (5, 10, True), (1, 2, False)])
def test_powered(passes: int, n: int, powered: bool) -> None:
    """Fewer than ten branches are never powered, ten are."""
    assert ranking_stats([True] * passes + [False] * (n - passes), []).powered is powered


def test_nothing_known_has_no_statistics() -> None:
    """Without a known outcome everything is None, and not powered."""
    stats = ranking_stats([], [])
    assert (stats.n, stats.passes) == (0, 0)
    assert stats.powered is False
    assert {value for name, value in stats.plain().items() if name not in {"n", "passes", "powered"}} == {None}


@pytest.mark.parametrize(
    ("outcomes", "p"),
    [
        ([True, True, False], None),
        ([True, True, False, False], 0.5),
        ([True] * 20, 1.0),
        ([False] * 7, 1.0),
        ([True] * 3 + [False] * 3, 0.25),
        ([True, True, True, False, False], 0.5),
        ([True] * 5 + [False] * 6, 0.0625),
    ],
)
def test_mcnemar_of_the_halves(outcomes: list[bool], p: float | None) -> None:
    """The i-th of the top half against the i-th of the bottom half; the middle of an odd number is in neither."""
    assert halves_p(outcomes) == p


def test_a_judge_that_prefers_what_it_sees_first() -> None:
    """It is never consistent, and always prefers the first."""
    votes = [Vote(0, 1, "ab", s, "a") for s in (0, 1)] + [Vote(0, 1, "ba", s, "b") for s in (0, 1)]
    assert vote_stats(votes) == (0.0, 1.0, 0.0)


def test_a_judge_that_does_not_look_at_the_order() -> None:
    """It is always consistent, and prefers the first half of the time."""
    votes = [Vote(a, b, order, 0, "a") for a, b in ((0, 1), (1, 2)) for order in ("ab", "ba")]
    assert vote_stats(votes) == (1.0, 0.5, 0.0)


def test_two_ties_agree_and_a_tie_and_a_win_do_not() -> None:
    """A tie is an answer of its own."""
    ties = [Vote(0, 1, "ab", 0, "tie"), Vote(0, 1, "ba", 0, "tie")]
    mixed = [Vote(0, 1, "ab", 1, "tie"), Vote(0, 1, "ba", 1, "a")]
    assert vote_stats(ties) == (1.0, None, 1.0)
    assert vote_stats(ties + mixed) == (0.5, 0.0, 0.75)


def test_missing_answers_and_single_orders_say_nothing_about_consistency() -> None:
    """Only samples with two valid answers count; a missing vote is in no rate."""
    votes = [Vote(0, 1, "ab", 0, "a"), Vote(0, 1, "ba", 0, None), Vote(0, 2, "ab", 0, "b")]
    assert vote_stats(votes) == (None, 0.5, 0.0)


def test_naming_a_pair_the_other_way_round_is_the_same_pair() -> None:
    """(0, 1) shown ab and (1, 0) shown ab are the two orders of one question."""
    assert vote_stats([Vote(0, 1, "ab", 0, "a"), Vote(1, 0, "ab", 0, "b")]) == (1.0, 0.5, 0.0)


def test_different_judges_are_different_questions() -> None:
    """Orders asked of two judges are not one question in both orders."""
    assert vote_stats([Vote(0, 1, "ab", 0, "a", "x"), Vote(0, 1, "ba", 0, "a", "y")]).position_consistency is None


def test_a_tie_by_content_is_no_vote_of_the_judge() -> None:
    """It says nothing about the judge."""
    assert vote_stats([tie_by_content(0, 1)]) == (None, None, None)


def test_floats_are_rounded() -> None:
    """Every float that leaves has nine significant digits."""
    stats = ranking_stats([True, False, False], [])
    assert stats.pass_rate == 0.333333333
    assert stats.wilson_low == nine(wilson(1, 3)[0])
