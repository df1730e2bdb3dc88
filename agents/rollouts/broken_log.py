"""Rollouts that cannot be made, because their facts on the log are missing or unusable."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from agents.redaction.redaction import redact
from agents.rollouts.rollout import Rollout
from schemas.errors import BraidError

P = ParamSpec("P")
R = TypeVar("R")


class BrokenLogError(BraidError):
    """The log lacks facts that a decision pinned (trimmed by retention, or changed), or has facts from which nothing
    can be made.
    """


def breaks_alone(make: Callable[Concatenate[Rollout, P], R]) -> Callable[Concatenate[Rollout, P], R]:
    """Let a function of one rollout's facts fail with BrokenLogError only.

    The same facts would fail again after every restart, so the one rollout is given up and does not block others.
    """

    @wraps(make)
    def made(rollout: Rollout, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return make(rollout, *args, **kwargs)
        except (BrokenLogError, MemoryError):
            raise
        except Exception as error:
            said = redact(str(error)).text  # it may quote an agent's text
            raise BrokenLogError(f"rollout {rollout.rollout_id}: {type(error).__name__}: {said}") from error

    return made
