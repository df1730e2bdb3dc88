"""The states of a rollout, and which may follow which."""

from enum import Enum

from schemas.errors import BraidError


class TransitionError(BraidError):
    """An invalid transition of a rollout's state: a bug in the caller."""


class Status(Enum):
    """The state of a rollout. Nothing ever leads back."""

    OPEN = "open"
    """Facts come in."""
    SETTLING = "settling"
    """RolloutSettled was written and has not been read back."""
    SETTLED = "settled"
    """Branches and verdicts are pinned; votes are collected."""
    CLOSING = "closing"
    """RolloutClosed was written and has not been read back."""
    CLOSED = "closed"
    """Everything is pinned, so the output is determined."""

    def to(self, following: "Status") -> "Status":
        """The following state. Raises TransitionError when it may not follow this one."""
        if not any(before is self and after is following for before, after in _STEPS):
            raise TransitionError(f"a rollout that is {self.value} cannot become {following.value}")
        return following


_STEPS = (
    # A decision of another worker may be read while ours is not even written: settled follows open as well.
    (Status.OPEN, Status.SETTLING),
    (Status.OPEN, Status.SETTLED),
    (Status.SETTLING, Status.SETTLED),
    (Status.SETTLED, Status.CLOSING),
    (Status.SETTLED, Status.CLOSED),
    (Status.CLOSING, Status.CLOSED),
)
"""Each state with a state that may follow it."""
