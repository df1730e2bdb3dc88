"""The gateway's refusals: one item at its own position, or a request as a whole."""

from typing import Any, NamedTuple

from agents.importers.line_error import LineError, TooLargeError
from schemas.errors import BraidError

BAD_SYNTAX = 400
FORBIDDEN = 403
CAPTURED = 409
TOO_LARGE = 413
BAD_CONTENT = 422


class Position(NamedTuple):
    """The position of an item in a body."""

    number: int
    """Which item, counted from 0."""
    line: int | None = None
    """Counted from 1, if the body has lines."""


class Problem(NamedTuple):
    """One refused item, and the reason."""

    at: Position | None
    """None if it is about the whole request."""
    field: str
    reason: str
    status: int
    """The HTTP status that it would have by itself."""

    def plain(self) -> dict[str, Any]:
        """The JSON view."""
        index, line = self.at or (None, None)
        return {"index": index, "line": line, "field": self.field, "reason": self.reason, "status": self.status}


class Caution(NamedTuple):
    """One accepted item that will not have the effect that its sender may expect."""

    at: Position
    field: str
    reason: str

    def plain(self) -> dict[str, Any]:
        """The JSON view."""
        return {"index": self.at.number, "line": self.at.line, "field": self.field, "reason": self.reason}


class ItemError(LineError):
    """An item that is refused for another reason than its content: too large, or not permitted to this caller."""

    def __init__(self, status: int, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.status = status


class RefusedError(BraidError):
    """A request that is refused as a whole, before anything of it was written."""

    def __init__(self, status: int, reason: str, *, field: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.status = status
        self.field = field
        self.reason = reason
        self.headers = headers or {}


def problem_of(error: LineError, at: Position | None) -> Problem:
    """The problem that an error is. Without a field the item could not be read at all."""
    return Problem(at, error.field, error.reason, _status(error))


def _status(error: LineError) -> int:
    if isinstance(error, ItemError):
        return error.status
    if isinstance(error, TooLargeError):
        return TOO_LARGE
    return BAD_CONTENT if error.field else BAD_SYNTAX


def shared_status(problems: list[Problem]) -> int:
    """The status of a request that was refused entirely: that of its problems if they agree, else plain 400."""
    statuses = {problem.status for problem in problems}
    return statuses.pop() if len(statuses) == 1 else BAD_SYNTAX
