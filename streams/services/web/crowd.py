"""Chooses which connections to close if there are too many. Pure: a connection is a name here, and the caller passes
the time.

A connection without a running request can be closed at any time: first those that never sent a request, then those kept
alive, the oldest first. So a client that sends its request at once gets in, even when an attacker shares its address.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Name = TypeVar("Name", bound=Hashable)

BURST = 2
"""Limits may be exceeded so many times until the next trimming: the request of a new connection may not have been read yet."""

SPARE = 64
"""Connections beyond the limits; they may use the health routes only."""


class Entry(NamedTuple, Generic[Name]):
    """The place that a new connection has."""

    is_spare: bool
    """Health routes only: all other connections have a running request."""
    evicted: tuple[Name, ...]
    """Connections to close for it. They were closed already."""


class _Queue(Generic[Name]):
    """Connections without a running request, oldest first, each with its idle time."""

    def __init__(self) -> None:
        self.fresh: OrderedDict[Name, float] = OrderedDict()
        self.idle: OrderedDict[Name, float] = OrderedDict()

    def oldest(self) -> tuple[Name, float] | None:
        for group in (self.fresh, self.idle):
            if group:
                return next(iter(group.items()))
        return None

    def discard(self, name: Name) -> None:
        self.fresh.pop(name, None)
        self.idle.pop(name, None)


class Crowd(Generic[Name]):
    """All connections of a server, by address."""

    def __init__(self, limit: int, limit_per_address: int) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._addresses: dict[Name, str] = {}
        self._spare: OrderedDict[Name, None] = OrderedDict()
        self._count: Counter[str] = Counter()
        self._all: _Queue[Name] = _Queue()
        self._queues: dict[str, _Queue[Name]] = {}

    def __len__(self) -> int:
        return len(self._addresses) + len(self._spare)

    def enter(self, name: Name, address: str, now: float) -> Entry[Name]:
        """Add a new connection. If there are far too many, the oldest one is closed at once."""
        queue = self._queues.get(address, self._all) if self._is_over(address) else self._all
        found = queue.oldest()
        if found is None and (self._is_over(address) or self._is_over()):
            self._spare[name] = None
            return Entry(True, (self._spare.popitem(last=False)[0],) if len(self._spare) > SPARE else ())
        evicted = (found[0],) if found is not None and len(self._addresses) >= BURST * self._limit else ()
        for oldest in evicted:
            self.leave(oldest)
        self._addresses[name] = address
        self._count[address] += 1
        self.waits(name, now, is_fresh=True)
        return Entry(False, evicted)

    def trim(self, before: float) -> list[Name]:
        """Remove connections beyond the limits that have waited since before that time."""
        evicted: list[Name] = []
        for address in [address for address, count in self._count.items() if count > self._limit_per_address]:
            while self._count[address] > self._limit_per_address and self._evict(
                self._queues[address], before, evicted
            ):
                pass
        while len(self._addresses) > self._limit and self._evict(self._all, before, evicted):
            pass
        return evicted

    def waits(self, name: Name, now: float, *, is_fresh: bool = False) -> None:
        """Mark a connection as idle."""
        address = self._addresses.get(name)
        if address is not None:
            for queue in (self._all, self._queues.setdefault(address, _Queue())):
                (queue.fresh if is_fresh else queue.idle).setdefault(name, now)

    def works(self, name: Name) -> None:
        """Mark a connection as having a running request."""
        self._all.discard(name)
        address = self._addresses.get(name)
        if address is not None:
            self._queues[address].discard(name)

    def leave(self, name: Name) -> None:
        """The connection is closed. May be called twice."""
        self._spare.pop(name, None)
        self.works(name)
        address = self._addresses.pop(name, None)
        if address is None:
            return
        self._count[address] -= 1
        if not self._count[address]:
            del self._count[address], self._queues[address]

    def _is_over(self, address: str | None = None) -> bool:
        """Whether all connections, or those of an address, have reached their limit."""
        if address is None:
            return len(self._addresses) >= self._limit
        return self._count[address] >= self._limit_per_address

    def _evict(self, queue: _Queue[Name], before: float, evicted: list[Name]) -> bool:
        found = queue.oldest()
        if found is None or found[1] >= before:
            return False
        self.leave(found[0])
        evicted.append(found[0])
        return True
