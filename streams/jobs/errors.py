"""Errors that several jobs share."""

from schemas.errors import BraidError
from streams.log.record import Spans


class ReplayError(BraidError):
    """A log that cannot be replayed, archived or compared as it was asked for."""


def require_topics(spans: Spans, place: str) -> None:
    """Raise ReplayError if a cluster has none of the topics."""
    if not any(spans.values()):
        raise ReplayError(f"{place} has no topics to read; is BRAID_PREFIX right?")
