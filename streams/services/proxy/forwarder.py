"""Forward calls to an upstream: bytes pass unchanged in both directions as they arrive; both bodies are copied.

Only hop-by-hop headers and those of the proxy are changed. The end of a response is held back until its copy is in the
spool, so that a call that its client saw complete is not lost when the process is killed.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from agents.capture.event_stream import is_event_stream
from agents.capture.token_request import EventFilter, without_token_ids
from streams.cluster.config import ProxyConfig, Upstream
from streams.services.gateway.problems import RefusedError
from streams.services.proxy.exchange import ClientGoneError, Exchange, Headers, header_text
from streams.services.proxy.identity import HEADERS as OWN

HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding",
    "upgrade", "expect",
})  # fmt: skip

AUTO = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that the client library would add."""

STATUSES = range(200, 600)
"""Statuses of answers that are passed on: a switch of protocols was not requested, and others are not HTTP."""


SLOW_S = 60.0
"""A client that sends no byte of its body for this long is disconnected."""

TOO_SLOW = "the client sends its request too slowly"

PACE = 1024
"""Minimum rate of a body in bytes a second, after the first `SLOW_S`."""


class Room:
    """The memory for the bodies of all calls under way."""

    def __init__(self, free: int) -> None:
        self.free = free


class BodyCopy:
    """The bytes of a body, up to a limit, while there is room for them."""

    def __init__(self, limit: int, room: Room) -> None:
        self._limit = limit
        self._room = room
        self._pieces: list[bytes] | None = []
        self._held = 0
        self.size = 0

    @property
    def is_gone(self) -> bool:
        """Whether the body is too long, or there was no room for it."""
        return self._pieces is None

    def add(self, piece: bytes) -> None:
        """Keep a piece."""
        self.size += len(piece)
        if self._pieces is None:
            return
        if self.size > self._limit or len(piece) > self._room.free:
            self.release()
            return
        self._pieces.append(piece)
        self._held += len(piece)
        self._room.free -= len(piece)

    def whole(self) -> bytes | None:
        """Return all of it; None when it is too long."""
        return None if self._pieces is None else b"".join(self._pieces)

    def release(self) -> None:
        """Free the bytes."""
        self._pieces = None
        self._room.free += self._held
        self._held = 0


class Passage:
    """One call under way: the bytes that have arrived so far."""

    def __init__(self, limit: int, room: Room) -> None:
        self.request = BodyCopy(limit, room)
        self.response = BodyCopy(limit, room)
        self.keys: tuple[str, ...] = ()
        """The keys that authorize the call. Captures never contain them, even if a body repeats them."""
        self.request_encoding = ""
        self.response_encoding = ""
        self.content_type = ""
        self.status: int | None = None
        self.started = time.monotonic()
        self.started_ms = int(time.time() * 1000)
        self.first_byte_ms: int | None = None
        self.cut: str | None = None
        """Why the response is incomplete."""
        self.policy_version = ""
        """The version of the policy, given by the caller."""
        self.asked: bytes | None = None
        """The caller's own request, if fields were added to it."""
        self.added: frozenset[str] = frozenset()
        """The added fields; their results are removed from the answer."""

    def release(self) -> None:
        """Free both bodies."""
        self.request.release()
        self.response.release()

    @property
    def latency_ms(self) -> int:
        """Milliseconds since the call began."""
        return int((time.monotonic() - self.started) * 1000)


Done = Callable[[Passage], Awaitable[None]]
"""Takes the copies of a call, once, when the call is complete."""


def end_to_end(headers: Headers) -> list[tuple[str, str]]:
    """The headers to forward: all but those of this connection."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == "connection" for token in value.split(",")
    }
    return [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP and name.lower() not in named]


class Forwarder:
    """The client of the upstreams."""

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Make the connection pool."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._config.connect_s, sock_read=self._config.silence_s
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, timeout=timeout, skip_auto_headers=AUTO,
            read_bufsize=256 * 1024, max_line_size=64 * 1024, max_field_size=64 * 1024,
        )  # fmt: skip

    async def stop(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def forward(
        self, exchange: Exchange, upstream: Upstream, path: str, headers: Headers, passage: Passage, done: Done,
        beside: Iterable[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        """Forward a call; `beside` has headers to add to the answer.

        Raises RefusedError (502), ClientGoneError, CancelledError.
        """
        assert self._session is not None
        announced = next((value for name, value in headers if name.lower() == "content-length"), "")
        if announced.isdigit() and int(announced) > self._config.max_body_bytes:
            raise _too_large(self._config.max_body_bytes)
        url = URL(upstream.url.rstrip("/") + path, encoded=True)
        sending = CIMultiDict((name, value) for name, value in headers if name.lower() != "host")
        data = self._data(exchange, passage) if exchange.has_body else None
        try:
            async with self._session.request(
                exchange.method, url, headers=sending, data=data, allow_redirects=False
            ) as response:
                await self._answer(exchange, response, passage, done, beside)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if passage.request.size > self._config.max_body_bytes:
                passage.cut = "the request is too large"
                raise _too_large(self._config.max_body_bytes) from None
            if passage.cut is None:
                passage.cut = f"the upstream could not be reached: {_words(error)}"
            await done(passage)
            if passage.status is None:
                raise RefusedError(408 if passage.cut == TOO_SLOW else 502, passage.cut) from None
            exchange.cut()

    def _data(self, exchange: Exchange, passage: Passage) -> bytes | AsyncIterator[bytes]:
        """The body: in one piece if it has arrived, so that the upstream need not wait for a second packet."""
        ready = exchange.whole_body()
        if ready is None:
            return self._sent(exchange, passage)
        passage.request.add(ready)
        return ready

    async def _sent(self, exchange: Exchange, passage: Passage) -> AsyncIterator[bytes]:
        pieces = exchange.body()
        while True:
            try:
                async with asyncio.timeout(SLOW_S + passage.request.size / PACE - (time.monotonic() - passage.started)):
                    piece = await anext(pieces, b"")
            except TimeoutError:
                passage.cut = TOO_SLOW
                raise
            except ClientGoneError:
                passage.cut = "the client hung up"
                raise
            if not piece:
                return
            passage.request.add(piece)
            if passage.request.size > self._config.max_body_bytes:
                raise _too_large(self._config.max_body_bytes)
            yield piece

    async def _answer(
        self, exchange: Exchange, response: aiohttp.ClientResponse, passage: Passage, done: Done,
        beside: Iterable[tuple[str, str]],
    ) -> None:  # fmt: skip
        if response.status not in STATUSES:
            passage.cut = f"the upstream answered with the status {response.status}"
            await done(passage)
            raise RefusedError(502, passage.cut)
        passage.status = response.status
        headers = end_to_end([(header_text(name), header_text(value)) for name, value in response.raw_headers])
        passage.response_encoding = response.headers.get("Content-Encoding", "")
        passage.content_type = response.headers.get("Content-Type", "")
        length = response.content_length if exchange.method != "HEAD" else 0
        if passage.added and not passage.response_encoding:
            await self._filtered(exchange, response, headers, passage, done, beside)
            return
        try:
            await exchange.start(response.status, response.reason or "", [*headers, *beside])
            async for piece in response.content.iter_any():
                if passage.first_byte_ms is None:
                    passage.first_byte_ms = passage.latency_ms
                passage.response.add(piece)
                if length is not None and passage.response.size >= length:
                    await done(passage)
                await exchange.write(piece)
            await done(passage)
        except (ClientGoneError, asyncio.CancelledError):
            passage.cut = "the client hung up"
            response.close()  # the upstream must notice
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            passage.cut = f"the upstream cut the response: {_words(error)}"
            raise
        with suppress(ClientGoneError):
            await exchange.finish()

    async def _filtered(
        self, exchange: Exchange, response: aiohttp.ClientResponse, headers: Headers, passage: Passage, done: Done,
        beside: Iterable[tuple[str, str]],
    ) -> None:  # fmt: skip
        """Remove the results of added fields: from a stream line by line, from another answer when it is complete."""
        named = [(name, value) for name, value in headers if name.lower() != "content-length"]
        events = EventFilter(passage.added) if is_event_stream(passage.content_type, b"") else None
        try:
            if events is not None:
                await exchange.start(response.status, response.reason or "", [*named, *beside])
            whole = bytearray()
            async for piece in response.content.iter_any():
                if passage.first_byte_ms is None:
                    passage.first_byte_ms = passage.latency_ms
                passage.response.add(piece)
                if events is not None:
                    await exchange.write(events.take(piece))
                    continue
                whole += piece
                if len(whole) > self._config.max_body_bytes:
                    passage.cut = "the answer is too long to be filtered"
                    response.close()
                    break
            await done(passage)
            if passage.cut is not None:
                raise RefusedError(502, passage.cut)
            if events is not None:
                await exchange.write(events.end())
            else:
                body = without_token_ids(bytes(whole), passage.added)
                named.append(("Content-Length", str(len(body))))
                await exchange.start(response.status, response.reason or "", [*named, *beside])
                await exchange.write(body)
        except (ClientGoneError, asyncio.CancelledError):
            passage.cut = "the client hung up"
            response.close()
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            passage.cut = f"the upstream cut the response: {_words(error)}"
            raise
        with suppress(ClientGoneError):
            await exchange.finish()


def upstream_key(upstream: Upstream) -> tuple[str, str]:
    """The header with the upstream's own key. Raises RefusedError (502) if it is not configured."""
    key = os.environ.get(upstream.key_variable, "") if upstream.key_variable else ""
    if not key:
        variable = upstream.key_variable or "proxy.upstreams.*.key_variable"
        raise RefusedError(502, f"the upstream's key is not set: {variable} is empty")
    return (upstream.key_header, f"Bearer {key}" if upstream.key_header == "authorization" else key)


def forwarded(headers: Headers) -> list[tuple[str, str]]:
    """The headers of a request that are forwarded to the upstream."""
    return [(name, value) for name, value in end_to_end(headers) if name.lower() not in OWN]


def _too_large(limit: int) -> RefusedError:
    return RefusedError(413, f"the body has more than {limit} bytes", field="body", headers={"Connection": "close"})


def _words(error: BaseException) -> str:
    """An error for people, without the address: a URL may hold a key."""
    return type(error).__name__
