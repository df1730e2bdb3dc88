"""The error of a fork outside its branches. Trouble inside a branch is its end status instead."""

from schemas.errors import BraidError


class ForkError(BraidError):
    """A fork that cannot be started or resumed as asked."""
