"""Requests for tests."""

from hashlib import sha256

from agents.judge.requests import rubric_hash
from schemas.judging import JudgedBranch, JudgeRequest

RUBRIC = "Which run solves the task better?"


def side(index: int, text: str) -> JudgedBranch:
    return JudgedBranch(branch_index=index, text=text, digest=sha256(text.encode()).hexdigest())


def request_of(
    a: str = "one", b: str | None = "two", *, samples: int = 2, rollout: str = "r", prefix: str = "", task: str = "t"
) -> JudgeRequest:
    digest = sha256(f"{rollout}/{a}/{b}".encode()).hexdigest()[:32]
    return JudgeRequest(
        request_id=digest,
        rollout_id=rollout,
        settled_id="s",
        task=task,
        shared_prefix=prefix,
        a=side(0, a),
        b=None if b is None else side(2, b),
        samples=samples,
        rubric=RUBRIC,
        rubric_hash=rubric_hash(RUBRIC),
    )
