"""The proxy inside the gateway: paths of upstreams go to it, everything else to the gateway."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.cluster.config import Settings
from streams.services.gateway.app import create_app
from streams.services.otlp.receiver import OtlpMount, Receiver
from streams.services.proxy.exchange import ClientGoneError, Headers, header_text
from streams.services.proxy.proxy import Proxy

SERVERS_OWN = frozenset({"date"})
"""Headers that the server writes itself."""


class AsgiExchange:
    """A request to an ASGI server."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        query = scope["query_string"].decode("latin-1")
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        self.method: str = scope["method"]
        self.target = f"{path}?{query}" if query else path
        self.headers: Headers = [(header_text(name), header_text(value)) for name, value in scope["headers"]]
        self.received = asyncio.Event()
        """Set when the body has arrived: any later message means that the client has disconnected."""

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""
        names = {name.lower(): value for name, value in self.headers}
        found = "transfer-encoding" in names or names.get("content-length", "0") != "0"
        if not found:
            self.received.set()
        return found

    def whole_body(self) -> bytes | None:
        """Unknown before the body is read."""
        return None

    async def body(self) -> AsyncIterator[bytes]:
        """The body, piece by piece as it arrives."""
        while not self.received.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            if not message.get("more_body"):
                self.received.set()
            if message.get("body"):
                yield message["body"]

    async def start(self, status: int, reason: str, headers: Headers) -> None:  # noqa: ARG002 - ASGI has no reason phrase
        """Send the head of the answer."""
        sent = [(name.encode(), value.encode()) for name, value in headers if name.lower() not in SERVERS_OWN]
        await self._told({"type": "http.response.start", "status": status, "headers": sent})

    async def write(self, piece: bytes) -> None:
        """Send a piece of the answer."""
        await self._told({"type": "http.response.body", "body": piece, "more_body": True})

    async def finish(self) -> None:
        """End the answer."""
        await self._told({"type": "http.response.body", "body": b"", "more_body": False})

    def cut(self) -> None:
        """Return without ending the answer: the server then closes the connection."""

    async def _told(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            raise ClientGoneError from None

    async def gone(self) -> None:
        """Return when the client has hung up."""
        await self.received.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def create_gateway(settings: Settings, view: Starlette | None = None) -> FastAPI:
    """The gateway with the routes of OTLP; with the proxy if upstreams are configured, and the pages if given.

    Raises ConfigError if it would be open to others.
    """
    app = create_app(settings, view)
    gateway = app.state.gateway
    # The innermost layer: every request passes the other layers first.
    app.user_middleware.append(Middleware(OtlpMount, receiver=Receiver(gateway), gateway=gateway))
    if settings.proxy.upstreams:
        proxy = Proxy(settings, gateway.metrics, gateway.sender, gateway.captured)
        gateway.beside.append(proxy)
        gateway.write_captures = proxy.outlet.write
        app.add_middleware(ProxyMount, proxy=proxy)
    return app


class ProxyMount:
    """ASGI middleware around the gateway."""

    def __init__(self, app: ASGIApp, *, proxy: Proxy) -> None:
        self._app = app
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or not self._proxy.takes(scope["path"]):
            await self._app(scope, receive, send)
            return
        exchange = AsgiExchange(scope, receive, send)
        call = asyncio.ensure_future(self._proxy.handle(exchange))
        gone = asyncio.ensure_future(exchange.gone())
        try:
            await asyncio.wait({call, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not call.done():
                call.cancel()
            await asyncio.gather(call, gone, return_exceptions=True)
        if not call.cancelled() and call.exception() is not None:
            raise call.exception()  # type: ignore[misc]
