"""Connections under siege: limits of time and number, which uvicorn does not have.

The header of a request must be complete in time, an answer must be read, idle connections are closed, and connections
are limited in number, in total and by address (`crowd.py`). The speed of a body is checked by its reader (`limits.py`).
Connections note when something happened; the guard looks at all of them twice a second.
"""

import asyncio
import resource
import sys
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple, Protocol

import h11
from prometheus_client import Counter, Gauge
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from streams.cluster.config import HttpConfig
from streams.services.web.crowd import BURST, Crowd

LOOK_S = 0.5
"""Time between two looks at all connections, so also how exactly limits are kept."""

YOUNG_S = 1.0
"""Time that connections get to send a request even if there are too many."""

HEALTH = frozenset({"/healthz", "/readyz", "/metrics"})
"""Routes that are answered when all connections are in use."""

OTHER_FILES = 128
"""File descriptors reserved for everything but connections: the broker, the registry, libraries."""

LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ConnectionMetrics(Protocol):
    """The counts of connections."""

    connections: Gauge
    cut: Counter
    """By reason."""


class Served(NamedTuple):
    """The settings that a server needs of its application."""

    config: HttpConfig
    metrics: ConnectionMetrics
    full: ASGIApp
    """Answers requests of connections beyond the limits."""
    ending: Callable[[], None] = lambda: None
    """Called when the server ends: endless answers must end then."""


class Guard:
    """The limits that all connections of a server share."""

    def __init__(self, served: Served) -> None:
        config, metrics = served.config, served.metrics
        self.config = config
        self.full = served.full
        limit = max(1, min(config.max_connections, (raise_file_limit() - OTHER_FILES) // BURST))
        self.crowd: Crowd[Connection] = Crowd(limit, config.max_connections_per_address)
        self._connections: set[Connection] = set()
        self._cut = metrics.cut
        self._looking = False
        self._looked = 0.0
        metrics.connections.set_function(lambda: len(self._connections))

    def enter(self, connection: "Connection", address: str, now: float) -> bool:
        """Add a connection and close those that must make room for it; return True if it may use the health routes
        only.
        """
        entry = self.crowd.enter(connection, address, now)
        self._connections.add(connection)
        for evicted in entry.evicted:
            self._close(evicted, "crowded")
        if not self._looking:
            self._looking = True
            connection.loop.call_later(LOOK_S, self._look, connection.loop)
        return entry.is_spare

    def leave(self, connection: "Connection") -> None:
        """Forget a connection that is closed."""
        self.crowd.leave(connection)
        self._connections.discard(connection)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        # However long this loop was busy, since the last check it has read all data that earlier connections had sent.
        before, self._looked = min(self._looked, now - YOUNG_S), now
        for connection in self.crowd.trim(before):
            self._close(connection, "crowded")
        for connection in list(self._connections):
            reason = connection.overdue(now)
            if reason is not None:
                self._close(connection, reason)
        self._looking = bool(self._connections)
        if self._looking:
            loop.call_later(LOOK_S, self._look, loop)

    def _close(self, connection: "Connection", reason: str) -> None:
        self._cut.labels(reason).inc()
        if reason == "header":
            connection.transport.write(LATE)
            connection.transport.close()
        else:
            connection.transport.abort()


class Connection(H11Protocol):
    """One connection, with the times that the guard needs."""

    def __init__(self, guard: Guard, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._guard = guard
        self._idle_since = self.loop.time()
        self._header_since: float | None = self._idle_since
        self._unread_since: float | None = None
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Enter, or stay for the health routes only."""
        super().connection_made(transport)
        if self._guard.enter(self, address_of(self.client), self.loop.time()):
            self.app = only_health(self.app, self._guard.full)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave."""
        super().connection_lost(exc)
        self._guard.leave(self)

    def data_received(self, data: bytes) -> None:
        """Read on; note when a header begins and when it is complete."""
        super().data_received(data)
        if not self._is_waiting:
            self._header_since = None
            self._guard.crowd.works(self)
        elif self._header_since is None and self.conn.their_state is h11.IDLE:
            if self.conn.trailing_data[0]:
                self._header_since = self.loop.time()
            else:  # the rest of a body that was answered before it was complete
                self._idle_since = self.loop.time()

    def on_response_complete(self) -> None:
        """Note that the connection waits again, unless the next request was there already."""
        super().on_response_complete()
        if self._is_waiting:
            self._idle_since = self.loop.time()
            self._guard.crowd.waits(self, self._idle_since)

    def resume_writing(self) -> None:
        """The client has read on."""
        super().resume_writing()
        self._unread_since = None

    def overdue(self, now: float) -> str | None:
        """Why this connection must be closed."""
        config = self._guard.config
        if self._is_unread_for(config.answer_s, now):
            return "unread"
        if self.transport.is_closing() or not self._is_waiting:
            return None
        if self._header_since is not None:
            return "header" if now - self._header_since >= config.header_s else None
        if self.conn.their_state is h11.SEND_BODY:
            return "body" if now - self._idle_since >= config.body_grace_s else None
        return "idle" if now - self._idle_since >= config.keep_alive_s else None

    @property
    def _is_waiting(self) -> bool:
        """Whether no request is running."""
        return self.cycle is None or self.cycle.response_complete

    def _is_unread_for(self, limit: float, now: float) -> bool:
        """Whether the client has read nothing of the answer for so long."""
        unread = self.transport.get_write_buffer_size()
        if not unread:
            self._unread_since = None
            return False
        if self._unread_since is None or unread < self._unread:
            self._unread_since = now
        self._unread = unread
        return now - self._unread_since >= limit


def address_of(client: tuple[str, int] | None) -> str:
    """The address that connections are counted by; of IPv6 the network of 64 bits, which one sender has at least."""
    host = client[0] if client else ""
    try:
        parsed = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
    return host


def only_health(app: ASGIApp, full: ASGIApp) -> ASGIApp:
    """An application for a connection beyond the limits."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if scope["path"] in HEALTH else full)(scope, receive, send)

    return respond


def raise_file_limit() -> int:
    """Open files that this process may have, after raising the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems report a limit that they do not grant
        return soft
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
