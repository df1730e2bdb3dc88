"""The one port through which something below `streams` writes to the log."""

from typing import Protocol

from agents.facts.fact import Fact


class Log(Protocol):
    """An append-only log of facts."""

    async def append(self, fact: Fact) -> None:
        """Add a fact; it is durable when this returns."""
