"""What can go wrong with a fork before and beside its branches. A branch's own trouble is its end status, not one of these."""

from schemas.errors import BraidError


class TaskError(BraidError):
    """A task directory that is not one; says which file, which field, and why."""


class SnapshotError(BraidError):
    """A workspace that cannot be kept or restored: too large, damaged, or with names that lead outside."""


class SandboxError(BraidError):
    """A sandbox cannot be made, or is broken. What runs inside never raises this: it has an exit code."""


class FileProblemError(BraidError):
    """A file of a workspace that cannot be read or written as asked; said to the agent as the tool's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ForkError(BraidError):
    """A fork that cannot be started or resumed as asked."""
