"""Properties that hold for any branches and any votes."""

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.ranking.ranking import Candidate, Contest, RankingResult, rank
from agents.ranking.vote_count import Vote
from schemas.numbers import nine
from tests.agents.ranking.simulated import close

FLIPPED = {"a": "b", "b": "a", "tie": "tie", None: None}
STATUSES = st.sampled_from(["pass", "fail", "unknown", "not_required"])


@st.composite
def contests(draw: st.DrawFn) -> Contest:
    n = draw(st.integers(1, 7))
    branches = [Candidate(i, draw(STATUSES)) for i in range(n)]
    index = st.integers(0, n)
    fields = (
        index,
        index,
        st.sampled_from(["ab", "ba", None]),
        st.integers(0, 2),
        st.sampled_from(["a", "b", "tie", None]),
    )
    votes = draw(st.lists(st.builds(Vote, *fields), max_size=40))
    return Contest(branches, votes)


def _question(vote: Vote) -> tuple[object, ...]:
    """Pairs that are asked once only: repetitions never reach the ranking."""
    first = vote.a if vote.order == "ab" else vote.b
    return frozenset((vote.a, vote.b)), first, vote.sample, vote.order is None


def floats(result: RankingResult) -> list[float]:
    return [
        value for row in (*result.branches, result.stats) for value in vars(row).values() if isinstance(value, float)
    ]


@settings(deadline=None)
@given(contests(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(contest: Contest, rng: Random) -> None:
    """Branches and votes in another order give the same result, to the bit."""
    branches, votes = list(contest.branches), list({_question(vote): vote for vote in contest.votes}.values())
    expected = rank(branches, votes)
    rng.shuffle(branches)
    rng.shuffle(votes)
    assert rank(branches, votes) == expected


@settings(deadline=None)
@given(contests())
def test_ranks_are_a_ranking(contest: Contest) -> None:
    """Ranks count from 1 over all known branches, lie in their ranges, and totals fall within a tier."""
    result = rank(*contest)
    ranked = [branch for branch in result.branches if branch.objective_status != "unknown"]
    assert [branch.rank for branch in result.branches] == [
        *range(1, len(ranked) + 1),
        *[None] * (len(result.branches) - len(ranked)),
    ]
    for branch in ranked:
        assert branch.rank_low <= branch.rank <= branch.rank_high
    for above, below in pairwise(ranked):
        assert (above.objective_status, below.objective_status) != ("fail", "pass")
        if above.objective_status == below.objective_status and None not in {above.total, below.total}:
            assert above.total >= below.total


@settings(deadline=None)
@given(contests())
def test_every_float_that_leaves_is_rounded(contest: Contest) -> None:
    """Nine significant digits, everywhere."""
    result = rank(*contest)
    assert [nine(x) for x in floats(result)] == floats(result)


@settings(deadline=None)
@given(contests())
def test_every_vote_is_counted_once(contest: Contest) -> None:
    """Each vote is valid for two branches, missing for two branches, or ignored."""
    result = rank(*contest)
    counted = sum(branch.n_comparisons + branch.n_missing for branch in result.branches)
    assert counted + 2 * result.ignored_votes == 2 * len(contest.votes)


@settings(deadline=None)
@given(contests())
def test_turning_every_vote_round_turns_the_scores_round(contest: Contest) -> None:
    """The opposite judge gives the opposite scores with the same errors."""
    turned = [Vote(each.a, each.b, each.order, each.sample, FLIPPED[each.preferred]) for each in contest.votes]
    one = {branch.branch_index: branch for branch in rank(*contest).branches}
    for branch in rank(contest.branches, turned).branches:
        same = one[branch.branch_index]
        assert close(branch.se, same.se)
        if same.bt_score is not None:
            assert close(branch.bt_score, -same.bt_score)
            assert close(branch.judge_score, 10.0 - same.judge_score)


@settings(deadline=None)
@given(contests(), st.permutations(range(8)))
def test_swapping_indexes_permutes_the_result(contest: Contest, new: list[int]) -> None:
    """Branches numbered otherwise keep their numbers; ranks differ only among equals."""
    branches = [Candidate(new[each.branch_index], each.objective_status) for each in contest.branches]
    votes = [Vote(new[each.a], new[each.b], each.order, each.sample, each.preferred) for each in contest.votes]
    swapped = {branch.branch_index: branch for branch in rank(branches, votes).branches}
    for branch in rank(*contest).branches:
        other = swapped[new[branch.branch_index]]
        for field in ("objective_score", "bt_score", "se", "judge_score", "total", "n_comparisons", "n_missing"):
            assert close(getattr(other, field), getattr(branch, field))
        assert (other.rank_low, other.rank_high) == (branch.rank_low, branch.rank_high)
