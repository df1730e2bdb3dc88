"""The error of one line or item of an input."""

from schemas.errors import BraidError


class LineError(BraidError):
    """An object that is not a fact, with the bad field and the reason.

    The rest of the file or request is still read.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class TooLargeError(LineError):
    """An object that exceeds its byte limit."""
