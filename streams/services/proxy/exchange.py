"""One request and its answer, whichever server speaks HTTP: the port between the proxy and aiohttp or ASGI."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import orjson

Headers = Sequence[tuple[str, str]]


def header_text(raw: bytes) -> str:
    """A name or value of a header as text. Servers and clients write UTF-8; other bytes are read as Latin-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class ClientGoneError(Exception):
    """The client has hung up."""


class Exchange(Protocol):
    """A request that waits for its answer. The handler is cancelled when the client hangs up."""

    method: str
    target: str
    """Path and query, unchanged from the request line."""
    headers: Headers

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""

    def whole_body(self) -> bytes | None:
        """The body if it has arrived completely; None if not: `body` then reads it."""

    def body(self) -> AsyncIterator[bytes]:
        """The body, piece by piece as it arrives."""

    async def start(self, status: int, reason: str, headers: Headers) -> None:
        """Send the head of the answer. Raises ClientGoneError."""

    async def write(self, piece: bytes) -> None:
        """Send a piece of the answer. Raises ClientGoneError."""

    async def finish(self) -> None:
        """End the answer."""

    def cut(self) -> None:
        """Close the connection in the middle of the answer."""


async def answer(exchange: Exchange, status: int, content: object, headers: Headers = ()) -> None:
    """Send a complete JSON answer of the proxy itself."""
    body = content.encode() if isinstance(content, str) else orjson.dumps(content)
    kind = "text/plain; charset=utf-8" if isinstance(content, str) else "application/json"
    await exchange.start(status, "", [("content-type", kind), ("content-length", str(len(body))), *headers])
    if exchange.method != "HEAD":
        await exchange.write(body)
    await exchange.finish()


class WholeBody:
    """An exchange whose body has been read already."""

    def __init__(self, exchange: Exchange, body: bytes) -> None:
        self._exchange = exchange
        self._body = body
        self.method, self.target, self.headers = exchange.method, exchange.target, exchange.headers
        self.start, self.write, self.finish, self.cut = exchange.start, exchange.write, exchange.finish, exchange.cut

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""
        return self._exchange.has_body

    def whole_body(self) -> bytes:
        """The body."""
        return self._body

    async def body(self) -> AsyncIterator[bytes]:
        """The body."""
        if self._body:
            yield self._body
