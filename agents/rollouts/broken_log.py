"""Rollouts that cannot be made: what the log holds of them does not lead anywhere."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from agents.redaction.redaction import redact
from agents.rollouts.rollout import Rollout
from schemas.errors import BraidError

P = ParamSpec("P")
R = TypeVar("R")


class BrokenLogError(BraidError):
    """The log does not hold what a decision pinned (trimmed by retention, or changed), or holds what nothing can be made of."""


def breaks_alone(make: Callable[Concatenate[Rollout, P], R]) -> Callable[Concatenate[Rollout, P], R]:
    """Let a function of one rollout's facts fail with BrokenLogError only.

    The same facts would make it fail again after every restart: one rollout is given up, and it holds up no others.
    """

    @wraps(make)
    def made(rollout: Rollout, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return make(rollout, *args, **kwargs)
        except (BrokenLogError, MemoryError):
            raise
        except Exception as error:
            said = redact(str(error)).text  # it may quote what an agent wrote
            raise BrokenLogError(f"rollout {rollout.rollout_id}: {type(error).__name__}: {said}") from error

    return made
