"""Expected errors of the local broker."""

from schemas.errors import BraidError


class BrokerError(BraidError):
    """The local broker cannot be resolved, started or stopped; the message says what to do."""
