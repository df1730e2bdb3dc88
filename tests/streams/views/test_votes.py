"""Votes counted by pair and by what was shown first."""

from schemas.judging import JudgeVote
from streams.views.vote_table import Cell, tally


def vote(**fields: object) -> JudgeVote:
    return JudgeVote.model_validate({"vote_id": "v", "rollout_id": "r", "a": 0, "b": 1, **fields})


def test_wins_are_told_apart_by_what_was_shown_first() -> None:
    """A judge that always prefers the first shows one win for each branch, all of them shown first."""
    counted = tally([vote(order="ab", preferred="a"), vote(order="ba", preferred="b")])
    assert counted.cells[0, 1] == Cell(shown_first=1)
    assert counted.cells[1, 0] == Cell(shown_first=1)


def test_a_winner_that_was_shown_second_is_counted_as_such() -> None:
    """`order` names positions, `preferred` names branches."""
    assert tally([vote(order="ba", preferred="a")]).cells[0, 1] == Cell(shown_second=1)


def test_ties_and_missing_answers_count_for_both() -> None:
    """Neither is a win, and a missing one keeps its cause."""
    counted = tally([vote(preferred="tie"), vote(preferred=None, cause="timeout")])
    assert str(counted.cells[0, 1]) == str(counted.cells[1, 0]) == "0+0 =1 ?1"
    assert counted.causes == {"timeout": 1}


def test_scores_are_kept_apart_from_comparisons() -> None:
    """A branch that was scored by itself was compared with no other."""
    counted = tally([vote(b=None, score=7.0), vote(b=None, score=8.0)])
    assert counted.scores == {0: [7.0, 8.0]}
    assert counted.pairs == []
