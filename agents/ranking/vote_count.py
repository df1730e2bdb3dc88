"""The votes of a judge as the ranking reads them, and how they add up within a tier.

Only votes about two branches of one tier count. Votes across tiers, about a branch that is in no tier (its outcome is
unknown, or it does not exist), or about a branch and itself are counted as ignored and have no other effect.
"""

from collections.abc import Mapping, Sequence
from math import fsum
from typing import NamedTuple, final

from agents.ranking.bradley_terry import Group, Pair, group_of
from schemas.judging import CONTENT_JUDGE, JudgeVote, Order, Preference
from schemas.numbers import nine


@final
class Vote:
    """One judge call about two branches, or a tie by content. Repetitions of a vote are removed before it gets here."""

    __slots__ = ("a", "b", "judge", "order", "preferred", "sample")

    def __init__(
        self, a: int, b: int, order: Order | None, sample: int, preferred: Preference | None, judge: str = ""
    ) -> None:
        self.a = a
        """A branch index."""
        self.b = b
        """Another one."""
        self.order = order
        """`ab`: a was shown first. None: there was no call, because the judged texts are identical (see
        `tie_by_content`).
        """
        self.sample = sample
        """The repetition."""
        self.preferred = preferred
        """Names a or b, not a position. None: the judge was asked, and gave no usable answer."""
        self.judge = judge
        """The judge that was asked: answers of different judges never count as two orders of one question."""


class Place(NamedTuple):
    """The place of a branch before judging."""

    tier: int
    position: int
    """Among the branches of its tier, by branch index."""


class VoteCount(NamedTuple):
    """The sums of all votes of a rollout."""

    groups: list[Group]
    """The wins within each tier."""
    counted: Sequence[Vote]
    """Votes within a tier, valid or missing."""
    ignored: int
    valid: dict[int, int]
    """Valid votes of each branch; ties by content are among them."""
    missing: dict[int, int]
    """Calls without a usable answer of each branch."""


def tie_by_content(a: int, b: int) -> Vote:
    """Two branches whose judged texts are identical: one tie, without an order and without a judge."""
    return Vote(a, b, None, 0, "tie")


def counted(vote: JudgeVote, b: int) -> Vote:
    """A vote as the ranking counts it; a tie by content is no judge's answer and has no order."""
    values = vars(vote)  # all at once: an attribute of a model takes five times as long as an entry of a dict
    if values["judge"] == CONTENT_JUDGE:
        return tie_by_content(values["a"], b)
    return Vote(values["a"], b, values["order"], values["sample"], values["preferred"], values["judge"])


def scalar_of(index: int, votes: Sequence[JudgeVote]) -> float | None:
    """Mean of the valid scores of a branch; None without any, never 5 and never 0."""
    scores = [vote.score for vote in votes if vote.b is None and vote.a == index and vote.score is not None]
    return nine(fsum(scores) / len(scores)) if scores else None


def count_votes(votes: Sequence[Vote], places: Mapping[int, Place], sizes: Sequence[int]) -> VoteCount:
    """Add up votes. Whole numbers of wins and ties are exact, so the order of the votes cannot matter."""
    answers: dict[Pair, dict[Preference | None, int]] = {}
    for vote in votes:
        pair = (vote.a, vote.b)
        about = answers.get(pair)
        if about is None:
            about = answers[pair] = {"a": 0, "b": 0, "tie": 0, None: 0}
        about[vote.preferred] += 1
    wins: list[dict[Pair, tuple[float, float]]] = [{} for _ in sizes]
    valid, missing = dict.fromkeys(places, 0), dict.fromkeys(places, 0)
    ignored = set()
    for (a, b), about in answers.items():
        first, second = places.get(a), places.get(b)
        if first is None or second is None or first.tier != second.tier or a == b:
            ignored.add((a, b))
            continue
        answered = about["a"] + about["b"] + about["tie"]
        for branch in (a, b):
            valid[branch] += answered
            missing[branch] += about[None]
        if answered:
            _add(wins[first.tier], first.position, second.position, about)
    counted = [vote for vote in votes if (vote.a, vote.b) not in ignored] if ignored else votes
    groups = [group_of(size, won) for size, won in zip(sizes, wins)]  # noqa: B905 - one for each
    return VoteCount(groups, counted, len(votes) - len(counted), valid, missing)


def _add(wins: dict[Pair, tuple[float, float]], i: int, j: int, about: Mapping[Preference | None, int]) -> None:
    """Add the answers about i (named a) and j (named b) to the wins of their pair; a tie is half a win for each."""
    ahead, behind = about["a"] + about["tie"] / 2, about["b"] + about["tie"] / 2
    if i > j:
        i, j, ahead, behind = j, i, behind, ahead
    before = wins.get((i, j), (0.0, 0.0))
    wins[i, j] = (before[0] + ahead, before[1] + behind)
