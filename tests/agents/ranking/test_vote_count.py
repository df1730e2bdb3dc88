"""How votes add up."""

import pytest

from agents.ranking.vote_count import Place, Vote, VoteCount, count_votes, tie_by_content

PLACES = {0: Place(0, 0), 4: Place(0, 1), 7: Place(0, 2), 2: Place(1, 0)}
"""Three branches in one tier and one in another."""


def count(*votes: Vote) -> VoteCount:
    return count_votes(votes, PLACES, [3, 1])


def test_each_call_is_one_observation() -> None:
    """Two wins, a loss and a tie of a pair are 2.5 wins against 1.5."""
    group = count(*(Vote(0, 7, "ab", s, p) for s, p in enumerate(("a", "a", "b", "tie")))).groups[0]
    assert (group.pairs, list(group.ahead), list(group.behind)) == (((0, 2),), [2.5], [1.5])


def test_a_pair_may_be_named_either_way() -> None:
    """Preferring a of (7, 4) is preferring b of (4, 7)."""
    group = count(Vote(7, 4, "ab", 0, "a"), Vote(4, 7, "ba", 0, "b")).groups[0]
    assert (group.pairs, list(group.ahead), list(group.behind)) == (((1, 2),), [0.0], [2.0])


def test_a_call_without_an_answer_is_no_comparison() -> None:
    """It is counted as missing for both branches, and its pair was not compared."""
    counted = count(Vote(0, 4, "ab", 0, None))
    assert counted.groups[0].pairs == ()
    assert counted.missing == {0: 1, 4: 1, 7: 0, 2: 0}
    assert counted.valid == {0: 0, 4: 0, 7: 0, 2: 0}


def test_a_tie_by_content_is_one_tie() -> None:
    """It has no order, and is one comparison of both branches."""
    counted = count(tie_by_content(0, 4))
    assert counted.counted[0].order is None
    assert (list(counted.groups[0].ahead), list(counted.groups[0].behind)) == ([0.5], [0.5])
    assert counted.valid == {0: 1, 4: 1, 7: 0, 2: 0}


@pytest.mark.parametrize(("a", "b"), [(0, 2), (2, 4), (0, 1), (99, 4), (5, 5), (4, 4)])
def test_votes_that_compare_nothing_are_ignored(a: int, b: int) -> None:
    """Across tiers, about a branch in no tier or about one branch: ignored, and not among the votes that count."""
    compared = Vote(0, 4, "ab", 0, "a")
    counted = count(Vote(a, b, "ab", 0, "a"), compared)
    assert counted.ignored == 1
    assert counted.counted == [compared]
    assert sum(counted.valid.values()) == 2
