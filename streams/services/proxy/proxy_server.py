"""`braid proxy` as a process: aiohttp's server around the proxy, with an address, signals and a graceful end."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext, suppress

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streams.cluster.config import Settings
from streams.cluster.garbage_collector import tune_gc
from streams.services.gateway.gateway_metrics import GatewayMetrics
from streams.services.proxy.exchange import ClientGoneError, Exchange, Headers, answer, header_text
from streams.services.proxy.proxy import Proxy
from streams.services.proxy.proxy_site import Connection, ProxySite

GRACE_S = 15.0
"""How long calls may take to finish when the proxy ends."""

ADDED = ("Date", "Server", "Content-Type")
"""Headers that aiohttp adds to answers that have none."""

SMALL = 256 * 1024
"""Bytes of a body that is forwarded in one piece."""

log = structlog.get_logger()


class PlainResponse(web.StreamResponse):
    """An answer without the headers that aiohttp adds."""

    unwanted: Sequence[str] = ()
    """Names of headers that are not to be sent."""


class AiohttpExchange:
    """A request to aiohttp's server."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self.method = request.method
        self.target = request.raw_path
        self.headers: Headers = [(header_text(name), header_text(value)) for name, value in request.raw_headers]
        self.response: web.StreamResponse | None = None

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""
        return self._request.body_exists

    def whole_body(self) -> bytes | None:
        """The body, if it has arrived completely."""
        content = self._request.content
        return content.read_nowait() if content.is_eof() and content.total_bytes <= SMALL else None

    async def body(self) -> AsyncIterator[bytes]:
        """The body, piece by piece as it arrives."""
        async for piece in self._request.content.iter_any():
            yield piece

    async def start(self, status: int, reason: str, headers: Headers) -> None:
        """Send the head of the answer."""
        response = PlainResponse(status=status, reason=reason or None)
        for name, value in headers:
            response.headers.add(name, value)
        given = {name.lower() for name, _ in headers}
        response.unwanted = [name for name in ADDED if name.lower() not in given]
        self.response = response
        try:
            await response.prepare(self._request)
        except OSError:
            raise ClientGoneError from None

    async def write(self, piece: bytes) -> None:
        """Send a piece of the answer."""
        assert self.response is not None
        try:
            await self.response.write(piece)
        except OSError:
            raise ClientGoneError from None

    async def finish(self) -> None:
        """End the answer."""
        assert self.response is not None
        with suppress(OSError):
            await self.response.write_eof()

    def cut(self) -> None:
        """Close the connection in the middle of the answer."""
        if self._request.transport is not None:
            self._request.transport.abort()


async def _without_additions(_request: web.BaseRequest, response: web.StreamResponse) -> None:
    for name in getattr(response, "unwanted", ()):
        response.headers.popall(name, None)


def create_proxy(proxy: Proxy, metrics: GatewayMetrics) -> web.Application:
    """The application of a proxy."""

    async def handle(request: web.Request) -> web.StreamResponse:
        exchange = AiohttpExchange(request)
        with request.protocol.at_work() if isinstance(request.protocol, Connection) else nullcontext():
            if not await _operations(exchange, request.path):
                await proxy.handle(exchange)
        assert exchange.response is not None or request.transport is None
        return exchange.response or web.Response(status=499)

    async def _operations(exchange: Exchange, path: str) -> bool:
        if path == "/healthz":
            await answer(exchange, 200, "ok\n")
        elif path == "/readyz":
            await answer(
                exchange, 200 if proxy.is_ready else 503, "ready\n" if proxy.is_ready else "not ready: no broker\n"
            )
        elif path == "/metrics":
            text = generate_latest(metrics.registry).decode()
            await answer(exchange, 200, text, [("x-content-format", CONTENT_TYPE_LATEST)])
        else:
            return False
        return True

    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", handle)
    app.on_response_prepare.append(_without_additions)
    return app


def runner_of(proxy: Proxy, metrics: GatewayMetrics) -> web.AppRunner:
    """The server of a proxy."""
    return web.AppRunner(create_proxy(proxy, metrics), handler_cancellation=True, shutdown_timeout=GRACE_S)


async def serve_proxy(settings: Settings, bound: socket.socket, said: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. Raises SpoolError."""
    metrics = GatewayMetrics()
    proxy = Proxy(settings, metrics)
    await proxy.start()
    runner = runner_of(proxy, metrics)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await runner.setup()
        tune_gc()  # a full collection of all imported objects would delay every stream for a tenth of a second
        await ProxySite(runner, bound).start()
        said()
        await stop.wait()
    finally:
        await runner.cleanup()
        await proxy.stop()
