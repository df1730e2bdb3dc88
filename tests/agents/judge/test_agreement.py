"""How judges behave: numbers that are known from elsewhere, and nothing where nothing is defined."""

import pytest

from agents.judge.agreement import TimedVote, agreement, buckets, by_judge, judge_stats, krippendorff_alpha, naming
from agents.judge.answers import Answer
from agents.judge.votes import Asked, Call, answered, content_tie, missing
from schemas.judging import JudgeVote, Usage
from tests.agents.judge.asking import request_of


def vote(rollout: str, order: str, letter: str | None, judge: str = "m", sample: int = 0) -> JudgeVote:
    asked = Asked(Call(order, sample), judge, "h", Usage(input_tokens=10, output_tokens=2), 40)  # type: ignore[arg-type]
    if letter is None:
        return missing(request_of(rollout=rollout), asked, "timeout")
    return answered(request_of(rollout=rollout), asked, Answer(letter, None, "x"))  # type: ignore[arg-type]


def test_alpha_of_the_published_example() -> None:
    """Krippendorff's own nominal example (four observers, twelve units, some values missing) gives 0.743."""
    rows = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    units = [[value for value in unit if value is not None] for unit in zip(*rows, strict=True)]
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=0.0005)


def test_alpha_is_not_defined_without_anything_to_compare() -> None:
    """One judge only, no pair in common, or one value everywhere."""
    assert krippendorff_alpha([["a"], ["b"]]) is None
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None
    assert krippendorff_alpha([]) is None
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1.0


def test_a_judge_that_goes_by_places_is_seen() -> None:
    """Always what is shown first: consistency 0, first position 1; missing answers by cause, tokens added up."""
    votes = [vote(rollout, order, "a") for rollout in ("r1", "r2") for order in ("ab", "ba")] + [vote("r3", "ab", None)]
    stats = judge_stats(votes)
    assert (stats.votes, stats.valid, stats.position_consistency, stats.first_position_rate) == (5, 4, 0.0, 1.0)
    assert (stats.missing, stats.tie_rate, stats.mean_latency_ms) == ({"timeout": 1}, 0.0, 40.0)
    assert (stats.input_tokens, stats.output_tokens, stats.usd) == (50, 10, None)


def test_branches_of_two_rollouts_are_not_one_pair() -> None:
    """One order in each of two rollouts is no pair of orders."""
    assert judge_stats([vote("r1", "ab", "a"), vote("r2", "ba", "b")]).position_consistency is None
    assert judge_stats([vote("r1", "ab", "a"), vote("r1", "ba", "b")]).position_consistency == 1.0


def test_judges_agree_on_what_most_of_their_votes_say() -> None:
    """A judge that only goes by places has no opinion; two that decide alike agree fully."""
    timed = [
        TimedVote(vote(rollout, order, letter, judge), 0)
        for judge in ("m", "n")
        for rollout, letters in (("r1", "ab"), ("r2", "ba"))
        for order, letter in zip(("ab", "ba"), letters, strict=True)
    ]
    assert agreement(by_judge(timed)) == 1.0
    biased = [TimedVote(vote(rollout, order, "a", "n"), 0) for rollout in ("r1", "r2") for order in ("ab", "ba")]
    found = agreement(by_judge([each for each in timed if each.vote.judge == "m"] + biased))
    assert found is not None
    assert found < 0.2


def test_ties_by_content_and_repetitions_are_left_out() -> None:
    """They are no answers of a judge."""
    once = TimedVote(vote("r1", "ab", "a"), 5)
    assert by_judge([once, once, TimedVote(content_tie(request_of("x", "x")), 1)]) == {"m": [once]}


def test_a_judge_with_two_rubrics_is_two_rows() -> None:
    """Two questions are not one: each row has its own votes, and alpha tells whether the rubrics come to the same."""
    timed = [
        TimedVote(each.model_copy(update={"vote_id": f"{number}/{each.vote_id}", "rubric_hash": rubric}), 0)
        for number, rubric in enumerate(("a" * 64, "b" * 64))
        for each in (vote(rollout, "ab", letter) for rollout, letter in (("r1", "a"), ("r2", "b")))
    ]
    other = TimedVote(vote("r1", "ab", "a", "n"), 0)
    rows = by_judge([*timed, other])
    assert {name: len(found) for name, found in rows.items()} == {
        f"m, rubric {'a' * 12}": 2, f"m, rubric {'b' * 12}": 2, "n": 1,
    }  # fmt: skip
    assert agreement(rows) == 1.0
    # A part of the votes has the names of the whole.
    assert list(by_judge(timed[:1], naming(timed))) == [f"m, rubric {'a' * 12}"]


def test_spans_of_time_hold_every_vote_once() -> None:
    """Equal spans from the first vote to the last, empty ones among them."""
    timed = [TimedVote(vote(f"r{at}", "ab", "a"), at) for at in (0, 10, 99)]
    spans = buckets(timed, 4)
    assert [(at, len(inside)) for at, inside in spans] == [(0, 2), (25, 0), (50, 0), (75, 1)]
    assert buckets([], 4) == []
    assert len(buckets(timed[:1], 4)) == 1
