"""/metrics, /healthz and /readyz of a worker: three read-only pages on an address of one's own choosing."""

import asyncio
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from schemas.errors import BraidError

REQUEST_BYTES = 8192
REQUEST_S = 5.0


class HealthError(BraidError):
    """The address is in use, or is not one of this machine."""


class Health:
    """A tiny HTTP server; off when no port is configured."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, is_ready: Callable[[], bool]) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._is_ready = is_ready
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, when a port is configured."""
        if self._port:
            try:
                self._server = await asyncio.start_server(self._answer, self._host, self._port, limit=REQUEST_BYTES)
            except OSError as error:
                raise HealthError(
                    f"metrics cannot listen on {self._host}:{self._port}: {error.strerror}; choose another --metrics-port"
                ) from None

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S)
            status, kind, body = self._page(request.split(b" ", 2)[1].decode(errors="replace"))
            head = (
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass
        finally:
            writer.close()

    def _page(self, path: str) -> tuple[str, str, bytes]:
        match path.partition("?")[0]:
            case "/metrics":
                return "200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case "/healthz":
                return "200 OK", "text/plain", b"ok\n"
            case "/readyz":
                return (
                    ("200 OK", "text/plain", b"ready\n")
                    if self._is_ready()
                    else ("503 Service Unavailable", "text/plain", b"not ready\n")
                )
        return "404 Not Found", "text/plain", b"not found\n"
