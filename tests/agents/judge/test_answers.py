"""Answers: strict JSON or nothing, and letters that find their way back to branches."""

import pytest

from agents.judge.answers import Answer, UnusableAnswerError, preferred, read_text, read_value
from agents.judge.votes import Asked, Call, answered, calls_of, content_tie, missing, vote_id
from schemas.judging import MissingCause
from tests.agents.judge.asking import request_of, side


def test_braces_and_quotes_in_the_reasoning_are_text() -> None:
    """A parser reads the answer, so whatever stands inside a string stays there."""
    answer = read_text(r'{"reasoning": "{\"preferred\": \"b\"} }{ ```", "preferred": "a"}', scalar=False)
    assert (answer.letter, answer.reasoning) == ("a", '{"preferred": "b"} }{ ```')


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "null", "[]", "{}", '"a"', "I prefer a.", '{"preferred": "a"}', '{"preferred": "a", "reasoning": null}',
        '{"preferred": "A", "reasoning": "x"}', '{"preferred": "first", "reasoning": "x"}', '{"preferred": null, "reasoning": "x"}',
        '{"preferred": ["a"], "reasoning": "x"}', '{"preferred": "a", "reasoning": "x", "confidence": 1}',
        '{"preferred": "a", "preferred": "b", "reasoning": "x"}', '```json\n{"preferred": "a", "reasoning": "x"}\n```',
        '{"preferred": "a", "reasoning": "x"} trailing', '{"preferred": "a", "reasoning": "x"', '{"score": 5, "reasoning": "x"}',
    ],
)  # fmt: skip
def test_anything_else_is_unusable(text: str) -> None:
    """No guess is made: not from prose, not from other spellings, not from two answers at once."""
    with pytest.raises(UnusableAnswerError):
        read_text(text, scalar=False)


@pytest.mark.parametrize("score", [-1, 10.5, True, "7", None, float("nan"), float("inf")])
def test_a_score_outside_its_range_is_unusable(score: object) -> None:
    """It is neither clamped nor taken for the middle."""
    with pytest.raises(UnusableAnswerError):
        read_value({"score": score, "reasoning": "x"}, scalar=True)


def test_letters_name_places_and_votes_name_branches() -> None:
    """With order ba the second branch was shown as A."""
    assert [preferred(letter, "ab") for letter in ("a", "b", "tie")] == ["a", "b", "tie"]  # type: ignore[arg-type]
    assert [preferred(letter, "ba") for letter in ("a", "b", "tie")] == ["b", "a", "tie"]  # type: ignore[arg-type]
    request = request_of()
    vote = answered(request, Asked(Call("ba", 1), "m", "h"), Answer("a", None, "because sk-proj-" + "a1B2" * 12))
    assert (vote.a, vote.b, vote.order, vote.sample, vote.preferred, vote.cause) == (0, 2, "ba", 1, "b", None)
    assert vote.reasoning is not None
    assert "a1B2a1B2" not in vote.reasoning


@pytest.mark.parametrize("cause", ["unparseable", "refused", "timeout", "rate_limited", "http_5xx", "budget"])
def test_a_missing_answer_is_neither_a_tie_nor_a_score(cause: MissingCause) -> None:
    """Its vote says why, and nothing else."""
    vote = missing(request_of(), Asked(Call("ab", 0), "m", "h"), cause)
    assert (vote.preferred, vote.score, vote.reasoning, vote.cause) == (None, None, None, cause)


def test_a_vote_id_changes_with_everything_it_is_a_function_of() -> None:
    """Rollout, pair, order, sample, judge, rubric and both texts; and with nothing else."""
    request, call = request_of(), Call("ab", 0)
    changed = [
        (request.model_copy(update={"rollout_id": "other"}), call, "m"),
        (request.model_copy(update={"a": request.a.model_copy(update={"branch_index": 1})}), call, "m"),
        (request.model_copy(update={"a": side(0, "another")}), call, "m"),
        (request.model_copy(update={"b": side(2, "another")}), call, "m"),
        (request.model_copy(update={"rubric_hash": "0"}), call, "m"),
        (request, Call("ba", 0), "m"),
        (request, Call("ab", 1), "m"),
        (request, call, "another"),
    ]
    ids = {vote_id(request, call, "m"), *(vote_id(*each) for each in changed)}
    assert len(ids) == len(changed) + 1
    same = request.model_copy(update={"request_id": "other", "samples": 9, "task": "other", "settled_id": "x"})
    assert vote_id(same, call, "m") == vote_id(request, call, "m")


def test_a_pair_is_asked_in_both_orders_and_a_score_has_none() -> None:
    """Samples times two calls for a pair, samples for a score."""
    assert calls_of(request_of(samples=2)) == [Call("ab", 0), Call("ba", 0), Call("ab", 1), Call("ba", 1)]
    assert calls_of(request_of(b=None, samples=3)) == [Call("ab", 0), Call("ab", 1), Call("ab", 2)]


def test_a_tie_by_content_is_a_vote_of_its_own_judge() -> None:
    """It says that no judge was asked."""
    tie = content_tie(request_of("same", "same"))
    assert (tie.judge, tie.sample, tie.preferred, tie.usage, tie.prompt_hash) == ("content", 0, "tie", None, None)
