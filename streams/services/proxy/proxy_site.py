"""The listening side of the proxy: limits the number of connections and their idle time, and never quotes a request."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb
from typing import Any

import structlog
from aiohttp import web

from streams.services.web.crowd import BURST, Crowd
from streams.services.web.guard import YOUNG_S, raise_file_limit

KEEP_ALIVE_S = 75.0
"""Agents pause between turns."""

HEADER_S = 10.0
"""Time until the header of a connection's first request must be complete."""

UNREAD_S = 600.0
"""A client that reads no byte of its answer for this long is disconnected (by the kernel, if it supports that)."""

MAX_CONNECTIONS = 4096
"""Most connections at once; fewer if open files are limited. The oldest without a request make room for new ones."""

OTHER_FILES = 128
"""File descriptors reserved for everything but calls."""


log = structlog.get_logger()


class Connection(web.RequestHandler):
    """One connection: its request must arrive in time, and no error quotes it."""

    def __init__(self, crowd: "Crowd[Connection]", server: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server, loop=loop, access_log=None, keepalive_timeout=KEEP_ALIVE_S,  # type: ignore[arg-type]  # no log of requests
            max_line_size=64 * 1024, max_field_size=64 * 1024, auto_decompress=False,
        )  # fmt: skip
        self._crowd = crowd
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; the oldest ones without a request make room."""
        super().connection_made(transport)
        now = asyncio.get_running_loop().time()
        entry = self._crowd.enter(self, "", now)
        for evicted in (*entry.evicted, *self._crowd.trim(now - YOUNG_S), *([self] if entry.is_spare else ())):
            evicted.give_up()
        self._late = asyncio.get_running_loop().call_later(HEADER_S, self.give_up)
        given = transport.get_extra_info("socket")
        if given is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            given.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1000))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Unregister the connection."""
        super().connection_lost(exc)
        self._crowd.leave(self)
        if self._late is not None:
            self._late.cancel()

    def give_up(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Record that a request is under way."""
        if self._late is not None:
            self._late.cancel()
        self._crowd.works(self)
        try:
            yield
        finally:
            self._crowd.waits(self, asyncio.get_running_loop().time())

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None  # noqa: ARG002
    ) -> web.StreamResponse:  # fmt: skip
        """Answer a request that is unreadable or failed. Never send the error's text: it quotes headers and keys."""
        place = extract_tb(exc.__traceback__)[-1] if exc is not None and exc.__traceback__ is not None else None
        where = None if place is None or status < 500 else f"{place.filename}:{place.lineno}"
        say = log.error if status >= 500 else log.info
        say("request refused", status=status, kind=type(exc).__name__, **({"where": where} if where else {}))
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        words = "the request cannot be read" if status < 500 else "the request cannot be answered"
        response = web.json_response({"error": {"type": "braid_proxy", "message": words}}, status=status)
        response.force_close()
        return response


class ProxySite(web.BaseSite):
    """The listening socket and its connections."""

    def __init__(self, runner: web.AppRunner, bound: socket.socket) -> None:
        super().__init__(runner)
        self._bound = bound
        self._crowd: Crowd[Connection] = Crowd(limit := _most_connections(), limit)

    @property
    def name(self) -> str:
        """The address."""
        return str(self._bound.getsockname())

    async def start(self) -> None:
        """Listen."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._crowd, self._runner.server, loop), sock=self._bound, backlog=2048
        )


def _most_connections() -> int:
    return max(1, min(MAX_CONNECTIONS, (raise_file_limit() - OTHER_FILES) // 2 // BURST))
