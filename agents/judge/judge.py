"""The interface of every judge: it answers one prompt, or raises an error with the cause. Adapters are in this folder."""

from typing import Protocol

from agents.judge.answers import Answer
from agents.judge.prompt import Prompt
from schemas.errors import BraidError
from schemas.judging import MissingCause, Usage


class JudgeTroubleError(BraidError):
    """No usable answer after all attempts: it becomes a vote with this cause, never a preference."""

    def __init__(self, cause: MissingCause, why: str, usage: Usage | None = None) -> None:
        super().__init__(why)
        self.cause = cause
        self.usage = usage


class JudgeSetupError(BraidError):
    """The judge cannot be asked at all: a wrong key, an unknown model, a bad rule file. No vote is written for that."""


class Judge(Protocol):
    """A judge."""

    name: str
    """Its name in votes: the model, or the name of a rule file."""

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer. Raises JudgeTroubleError if there is no answer, JudgeSetupError if the judge cannot give any."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


def added(one: Usage | None, other: Usage | None) -> Usage | None:
    """The usage of two calls together; a number that neither has stays unknown."""
    if one is None or other is None:
        return one or other
    return Usage(
        input_tokens=_sum(one.input_tokens, other.input_tokens),
        output_tokens=_sum(one.output_tokens, other.output_tokens),
        cached_tokens=_sum(one.cached_tokens, other.cached_tokens),
        usd=None if one.usd is None and other.usd is None else (one.usd or 0.0) + (other.usd or 0.0),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
