"""A record on its way to the log, as every writer of the log takes it: Kafka producers and container files."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Outgoing(NamedTuple):
    """One record with its address."""

    topic: str
    """With the prefix."""
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


Send = Callable[[Outgoing], Awaitable[None]]
"""Writes a record."""
