"""The votes of a judge as the ranking reads them, and how they add up within a tier.

Only votes about two branches of one tier count. Votes across tiers, and votes about a branch that is in no tier (its
outcome is unknown, or it does not exist), are counted as ignored and change nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agents.ranking.bradley_terry import Group
from agents.ranking.unrolled import Pair
from schemas.judging import Order, Preference


class Vote(NamedTuple):
    """One judge call about two branches, or a tie by content. Repetitions of a vote are removed before it gets here."""

    a: int
    """A branch index."""
    b: int
    """Another one."""
    order: Order | None
    """`ab`: a was shown first. None: nobody was asked, the judged texts are identical (see `tie_by_content`)."""
    sample: int
    """The repetition."""
    preferred: Preference | None
    """Names a or b, not a position. None: asked, and no usable answer."""
    judge: str = ""
    """Who was asked: answers of different judges are never taken for two orders of one question."""


class Place(NamedTuple):
    """Where a branch stands before anything is ranked."""

    tier: int
    position: int
    """Among the branches of its tier, by branch index."""


class VoteCount(NamedTuple):
    """What all votes of a rollout add up to."""

    groups: list[Group]
    """The wins within each tier."""
    counted: list[Vote]
    """Votes within a tier, valid or missing."""
    ignored: int
    valid: dict[int, int]
    """Valid votes of each branch; ties by content are among them."""
    missing: dict[int, int]
    """Calls without a usable answer of each branch."""


def tie_by_content(a: int, b: int) -> Vote:
    """Two branches whose judged texts are identical: one tie, without an order and without a judge."""
    return Vote(a, b, None, 0, "tie")


def count_votes(votes: Iterable[Vote], places: Mapping[int, Place], sizes: list[int]) -> VoteCount:
    """Add up votes. A win is 1, a tie 0.5 for each: such sums are exact, so the order of the votes cannot matter."""
    wins: list[dict[Pair, list[float]]] = [{} for _ in sizes]
    counted: list[Vote] = []
    ignored = 0
    valid, missing = dict.fromkeys(places, 0), dict.fromkeys(places, 0)
    for vote in votes:
        a, b, _, _, preferred, _ = vote
        first, second = places.get(a), places.get(b)
        if first is None or second is None or first[0] != second[0]:
            ignored += 1
            continue
        if a == b:
            raise ValueError(f"a vote compares branch {a} with itself; a and b must differ")
        counted.append(vote)
        tellers = valid if preferred is not None else missing
        tellers[a] += 1
        tellers[b] += 1
        if preferred is not None:
            share = 0.5 if preferred == "tie" else float(preferred == "a")
            _, i = first
            tier, j = second
            if i > j:
                i, j, share = j, i, 1.0 - share
            won = wins[tier].setdefault((i, j), [0.0, 0.0])
            won[0] += share
            won[1] += 1.0 - share
    groups = [_group(size, won) for size, won in zip(sizes, wins, strict=True)]
    return VoteCount(groups, counted, ignored, valid, missing)


def _group(size: int, wins: dict[Pair, list[float]]) -> Group:
    pairs = tuple(sorted(wins))
    return Group(size, pairs, [wins[pair][0] for pair in pairs], [wins[pair][1] for pair in pairs])
