"""Votes: the calls of a request, the id of each, and the record of an answer or of the reason why there is none.

A vote's id is known before the judge is asked, so a call whose vote is in the log is never paid for again.
"""

from hashlib import sha256
from typing import NamedTuple

from agents.judge.answers import Answer, preferred
from agents.judge.judged_text import fitting
from schemas.jsontext import compact
from schemas.judging import CONTENT_JUDGE, JudgeRequest, JudgeVote, MissingCause, Order, Usage

ORDERS: tuple[Order, ...] = ("ab", "ba")

MAX_REASONING_BYTES = 4000
"""Limit of a judge's reasoning in a vote."""


class Call(NamedTuple):
    """One question to a judge."""

    order: Order
    """Which of the two is shown first; `ab` if a branch is scored alone."""
    sample: int


class Asked(NamedTuple):
    """A call that was made, with or without an answer."""

    call: Call
    judge: str
    prompt_hash: str
    usage: Usage | None = None
    latency_ms: int | None = None


def calls_of(request: JudgeRequest) -> list[Call]:
    """All calls of a request: both orders of a pair, `samples` times each; a score has no order."""
    orders = ORDERS if request.b is not None else ORDERS[:1]
    return [Call(order, sample) for sample in range(request.samples) for order in orders]


def vote_id(request: JudgeRequest, call: Call, judge: str) -> str:
    """A function of rollout, pair, order, sample, judge, rubric and the digests of both judged texts."""
    b = request.b
    said = [
        "vote", request.rollout_id, request.a.branch_index, b.branch_index if b else None, call.order, call.sample,
        judge, request.rubric_hash, request.a.digest, b.digest if b else None,
    ]  # fmt: skip
    return sha256(compact(said).encode()).hexdigest()[:32]


def answered(request: JudgeRequest, asked: Asked, answer: Answer) -> JudgeVote:
    """The vote of a usable answer."""
    vote = _vote(request, asked)
    return vote.model_copy(
        update={
            "preferred": preferred(answer.letter, asked.call.order) if answer.letter is not None else None,
            "score": answer.score,
            "reasoning": fitting(answer.reasoning, MAX_REASONING_BYTES),
        }
    )


def missing(request: JudgeRequest, asked: Asked, cause: MissingCause) -> JudgeVote:
    """The vote that records why there is no answer: never a tie, never a score."""
    return _vote(request, asked).model_copy(update={"cause": cause})


def content_tie(request: JudgeRequest) -> JudgeVote:
    """The vote about two identical judged texts."""
    call = Call("ab", 0)
    return _vote(request, Asked(call, CONTENT_JUDGE, "")).model_copy(update={"preferred": "tie", "prompt_hash": None})


def _vote(request: JudgeRequest, asked: Asked) -> JudgeVote:
    return JudgeVote(
        vote_id=vote_id(request, asked.call, asked.judge),
        rollout_id=request.rollout_id,
        request_id=request.request_id,
        a=request.a.branch_index,
        b=request.b.branch_index if request.b is not None else None,
        order=asked.call.order,
        sample=asked.call.sample,
        judge=asked.judge,
        rubric_hash=request.rubric_hash,
        prompt_hash=asked.prompt_hash,
        a_digest=request.a.digest,
        b_digest=request.b.digest if request.b is not None else None,
        usage=asked.usage,
        latency_ms=asked.latency_ms,
    )
