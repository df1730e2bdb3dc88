"""The error of one line or item of an input."""

from schemas.errors import BraidError


class LineError(BraidError):
    """An object that is not a fact: which field, and why. The rest of the file or request goes on."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class TooLargeError(LineError):
    """An object over its limit of bytes."""
