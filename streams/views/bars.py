"""Intervals as bars of characters on a common scale, with their sentences."""

from collections.abc import Sequence
from typing import NamedTuple

from agents.ranking.statistics import POWERED_FROM, POWERED_WITHIN_PP
from schemas.rankings import RankingStats
from streams.log.terminal_text import several

WIDTH = 25
"""Characters of a bar."""

Z95 = 1.96


class Interval(NamedTuple):
    """A number with its interval."""

    middle: float
    low: float
    high: float


def interval(score: float | None, se: float | None) -> Interval | None:
    """Score +/- 1.96 standard errors; None if there were no comparisons."""
    if score is None:
        return None
    reach = Z95 * (se or 0.0)
    return Interval(score, score - reach, score + reach)


def bars(intervals: Sequence[Interval | None], width: int = WIDTH) -> list[str]:
    """One bar for each interval, all on the scale from the lowest end to the highest."""
    known = [each for each in intervals if each is not None]
    low = min((each.low for each in known), default=0.0)
    high = max((each.high for each in known), default=0.0)
    return ["" if each is None else bar(each, low, high, width) for each in intervals]


def bar(each: Interval, low: float, high: float, width: int = WIDTH) -> str:
    """An interval on the scale from `low` to `high`: its ends, the line between them, and its middle on top."""

    def column(value: float) -> int:
        share = 0.5 if high <= low else (value - low) / (high - low)
        return min(width - 1, max(0, round(share * (width - 1))))

    first, middle, last = column(each.low), column(each.middle), column(each.high)
    drawn = [" "] * width
    for at in range(first, last + 1):
        drawn[at] = "─"
    if first < last:
        drawn[first], drawn[last] = "├", "┤"
    drawn[middle] = "●"
    return "".join(drawn)


def powered_sentence(stats: RankingStats) -> str:
    """Why the group is or is not large enough."""
    if not stats.n or stats.min_detectable_delta_pp is None:
        return "Not powered: no branch is known to pass or fail."
    group = several(stats.n, "branch", "branches") + " with a known outcome"
    width = f"half-width {stats.min_detectable_delta_pp:.1f} pp"
    rate = f"{stats.passes} of {stats.n} pass"
    if stats.wilson_low is not None and stats.wilson_high is not None:
        rate += f" (95%: {stats.wilson_low:.0%} to {stats.wilson_high:.0%})"
    if stats.powered:
        return f"Powered: {group}, {width}, below {POWERED_WITHIN_PP:.0f}; {rate}."
    if stats.n < POWERED_FROM:
        return f"Not powered: {group}, {POWERED_FROM} are needed; {width}; {rate}."
    return f"Not powered: {width} with {group}, below {POWERED_WITHIN_PP:.0f} is needed; {rate}."
