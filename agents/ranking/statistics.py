"""Statistics of a group of branches, and of its judge's behaviour, shown with a ranking.

Pass rate with its Wilson interval, whether the group is large enough to be meaningful, an exact McNemar test, and how
much the judge's votes depend on the order of the sides. An undefined number is None, never 0. Nothing here decides
anything: the numbers are descriptive.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import sqrt
from typing import Final, NamedTuple

from agents.ranking.vote_count import Vote
from schemas.codec.maker import unchecked
from schemas.numbers import nine
from schemas.rankings import RankingStats

_stats: Final = unchecked(RankingStats)

Z95 = 1.959963984540054
"""The 97.5% point of the normal distribution: two-sided 95%."""

POWERED_FROM = 10
"""Branches below which no interval is called powered."""

POWERED_WITHIN_PP = 30.0
"""Half-widths of this many percentage points or more mean that the group is too small."""

TIE = -1
"""Marks a tie, instead of the winner's index."""

MCNEMAR_FROM = 4
"""Branches below which two halves cannot be compared."""


class VoteStats(NamedTuple):
    """Statistics of the judge's votes. Ties by content are no votes of a judge and do not count here."""

    position_consistency: float | None
    first_position_rate: float | None
    tie_rate: float | None


def ranking_stats(outcomes: Sequence[bool], votes: Iterable[Vote]) -> RankingStats:
    """Statistics of the known passes and failures, in the order of the ranking, and of the votes that count."""
    n, passes = len(outcomes), sum(outcomes)
    judge = vote_stats(votes)
    pass_rate, low, high, powered, half_width_pp = _power(passes, n)
    return _stats(
        n=n,
        passes=passes,
        pass_rate=pass_rate,
        wilson_low=low,
        wilson_high=high,
        powered=powered,
        min_detectable_delta_pp=half_width_pp,
        mcnemar_p=halves_p(outcomes),
        position_consistency=judge.position_consistency,
        first_position_rate=judge.first_position_rate,
        tie_rate=judge.tie_rate,
    )


@lru_cache(maxsize=4096)  # groups are small: the same few counts occur again and again
def _power(passes: int, n: int) -> tuple[float | None, float | None, float | None, bool, float | None]:
    """Pass rate, Wilson interval, whether it is powered, and the interval's half-width in percentage points, to one decimal."""
    if n == 0:
        return None, None, None, False, None
    low, high = map(nine, wilson(passes, n))
    half_width_pp = nine(50.0 * (high - low))
    powered = n >= POWERED_FROM and half_width_pp < POWERED_WITHIN_PP
    return nine(passes / n), low, high, powered, round(half_width_pp, 1)


def vote_stats(votes: Iterable[Vote]) -> VoteStats:
    """Position consistency, first position rate and tie rate of the valid votes."""
    counts = _vote_counts(votes)
    return VoteStats(
        _share(counts.agree, counts.turned),
        _share(counts.to_first, counts.valid - counts.ties),
        _share(counts.ties, counts.valid),
    )


def turned_pairs(votes: Iterable[Vote]) -> tuple[int, int]:
    """How many pairs were asked in both orders, and how many of those got the same answer."""
    counts = _vote_counts(votes)
    return counts.turned, counts.agree


class _VoteCounts(NamedTuple):
    """Counts of the votes."""

    valid: int
    ties: int
    to_first: int
    turned: int
    """Pairs asked in both orders."""
    agree: int
    """Those of them with the same answer."""


def _vote_counts(votes: Iterable[Vote]) -> _VoteCounts:
    valid = ties = to_first = 0
    answers: dict[tuple[int, int, int, str], int] = {}
    for vote in votes:
        preferred = vote.preferred
        if preferred is None or vote.order is None:
            continue
        valid += 1
        first, second = (vote.a, vote.b) if vote.order == "ab" else (vote.b, vote.a)
        winner = TIE if preferred == "tie" else vote.a if preferred == "a" else vote.b
        ties += winner == TIE
        to_first += winner == first
        answers.setdefault((first, second, vote.sample, vote.judge), winner)
    both = agree = 0
    for (first, second, sample, judge), winner in answers.items():
        turned = answers.get((second, first, sample, judge)) if first < second else None
        if turned is not None:
            both += 1
            agree += turned == winner
    return _VoteCounts(valid, ties, to_first, both, agree)


def wilson(passes: int, n: int) -> tuple[float, float]:
    """The Wilson 95% interval of a pass rate, n > 0. It ends exactly at 0 without passes and at 1 without failures."""
    rate = passes / n
    scale = 1.0 + Z95 * Z95 / n
    centre = (rate + Z95 * Z95 / (2 * n)) / scale
    half = Z95 / scale * sqrt(rate * (1.0 - rate) / n + Z95 * Z95 / (4 * n * n))
    return (0.0 if passes == 0 else centre - half, 1.0 if passes == n else centre + half)


def mcnemar(b: int, c: int) -> float:
    """Exact two-sided p for b and c discordant pairs, 1 if there are none; integers up to the last division."""
    n = b + c
    tail = ways = 1
    for k in range(min(b, c)):
        ways = ways * (n - k) // (k + 1)
        tail += ways
    return min(1.0, 2 * tail / (1 << n))


def halves_p(outcomes: Sequence[bool]) -> float | None:
    """McNemar of the top half against the bottom half. Of an odd number the one in the middle is in neither."""
    if len(outcomes) < MCNEMAR_FROM:
        return None
    half = len(outcomes) // 2
    only_top = only_bottom = 0
    for top, bottom in zip(outcomes[:half], outcomes[-half:]):  # noqa: B905 - two halves
        only_top += top and not bottom
        only_bottom += bottom and not top
    return nine(mcnemar(only_top, only_bottom))


def _share(part: int, whole: int) -> float | None:
    return nine(part / whole) if whole else None
