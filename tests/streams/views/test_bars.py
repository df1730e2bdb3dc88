"""Interval bars and the sentence about what a group can tell."""

import pytest

from agents.ranking.statistics import ranking_stats
from schemas.rankings import RankingStats
from streams.views.bars import Interval, bar, bars, interval, powered_sentence


def test_bars_share_one_scale() -> None:
    """The lowest end is at the left of its bar, the highest at the right of its own."""
    low, high = bars([Interval(-1.0, -2.0, 0.0), Interval(1.0, 0.0, 2.0)], width=9)
    assert low == "├─●─┤    "
    assert high == "    ├─●─┤"


def test_a_score_without_an_error_is_a_point() -> None:
    """Nothing is drawn that is not known."""
    assert bar(Interval(0.0, 0.0, 0.0), -1.0, 1.0, width=5) == "  ●  "


def test_a_branch_that_was_not_compared_has_no_bar() -> None:
    """Null is not zero."""
    assert bars([None, Interval(0.0, -1.0, 1.0)], width=3) == ["", "├●┤"]
    assert interval(None, 0.3) is None


def test_an_interval_is_the_score_and_1_96_errors() -> None:
    """The bar shows a 95% interval."""
    assert interval(1.0, 0.5) == Interval(1.0, 1.0 - 0.98, 1.0 + 0.98)


@pytest.mark.parametrize(
    ("passes", "n", "said"),
    [
        (
            2,
            4,
            "Not powered: 4 branches with a known outcome, 10 are needed; half-width 35.0 pp; 2 of 4 pass (95%: 15% to 85%).",
        ),
        (
            5,
            10,
            "Powered: 10 branches with a known outcome, half-width 26.3 pp, below 30; 5 of 10 pass (95%: 24% to 76%).",
        ),
    ],
)
def test_why_a_group_is_or_is_not_powered(passes: int, n: int, said: str) -> None:
    """The sentence names n, what is needed, and the half-width."""
    found = ranking_stats([True] * passes + [False] * (n - passes), [])
    assert powered_sentence(found) == said


def test_a_wide_interval_is_named_as_the_reason() -> None:
    """With enough branches it is the half-width that is too large."""
    stats = RankingStats(n=12, passes=6, powered=False, min_detectable_delta_pp=31.0)
    assert powered_sentence(stats).startswith("Not powered: half-width 31.0 pp with 12 branches")


def test_a_group_of_unknowns_says_so() -> None:
    """Without any known outcome there is nothing to compute."""
    assert powered_sentence(RankingStats(n=0, passes=0)) == "Not powered: no branch is known to pass or fail."
