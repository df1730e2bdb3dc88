"""Memory stays bounded: bodies are read within a budget that all requests share, and not slower than configured."""

import asyncio
from types import TracebackType
from typing import Self

from fastapi import Request

from streams.cluster.config import GatewayConfig
from streams.services.gateway.problems import TOO_LARGE, RefusedError

BODIES_AT_ONCE = 4
"""Bodies of full size that may be in memory at once; accordingly more of smaller ones."""

UNPACKED_AT_ONCE = 80 * 1024 * 1024
"""Bytes that compressed bodies may expand to at once: one of full size, or several smaller ones."""

REQUESTS_AT_ONCE = 512
"""Concurrent requests; each needs at least a connection and some objects."""

RETRY_AFTER = {"Retry-After": "2"}


class Budget:
    """Bytes and requests that are being worked on."""

    def __init__(self, max_body_bytes: int, bodies_at_once: int = BODIES_AT_ONCE) -> None:
        self.max_body_bytes = max_body_bytes
        self.free_bytes = max_body_bytes * bodies_at_once
        self.free_unpacked = UNPACKED_AT_ONCE
        self.free_requests = REQUESTS_AT_ONCE

    def hold(self) -> "Hold":
        """The share of one request: released when the block ends."""
        return Hold(self)


class Hold:
    """The part of the budget that one request has taken."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes = 0
        self._unpacked = 0

    def __enter__(self) -> Self:
        if self._budget.free_requests <= 0:
            raise RefusedError(503, "too many requests at once; try again in a moment", headers=RETRY_AFTER)
        self._budget.free_requests -= 1
        return self

    def take(self, count: int) -> None:
        """Take some bytes. Raises RefusedError when the body is too large (413), or all bodies together (503)."""
        if self._bytes + count > self._budget.max_body_bytes:
            raise _too_large(self._budget.max_body_bytes)
        if count > self._budget.free_bytes:
            raise RefusedError(503, "too much is being sent at once; try again in a moment", headers=RETRY_AFTER)
        self._bytes += count
        self._budget.free_bytes -= count

    def unpack(self, count: int) -> None:
        """Count bytes that a compressed body expands to. Raises RefusedError (503) when all bodies together have too
        many.
        """
        if count > self._budget.free_unpacked:
            raise RefusedError(503, "too much is being sent at once; try again in a moment", headers=RETRY_AFTER)
        self._unpacked += count
        self._budget.free_unpacked -= count

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._budget.free_requests += 1
        self._budget.free_bytes += self._bytes
        self._budget.free_unpacked += self._unpacked


async def read_body(request: Request, hold: Hold, config: GatewayConfig) -> bytes:
    """The body of a request. A body that is too large is not read to its end, or not at all if its header shows the
    size.

    Time is given for the bytes of one grace period at a time, so a fast beginning buys no pause later.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > config.max_body_bytes:
        raise _too_large(config.max_body_bytes)
    body, counted, enough = bytearray(), 0, config.body_bytes_per_s * config.body_grace_s
    try:
        async with asyncio.timeout(config.body_grace_s) as limit:
            async for chunk in request.stream():
                hold.take(len(chunk))
                body += chunk
                if len(body) - counted >= enough:
                    counted = len(body)
                    limit.reschedule(asyncio.get_running_loop().time() + config.body_grace_s)
    except TimeoutError:
        reason = f"the body came slower than {config.body_bytes_per_s} bytes a second for {config.body_grace_s:g} s"
        raise RefusedError(408, reason, field="body", headers={"Connection": "close"}) from None
    return bytes(body)


def _too_large(limit: int) -> RefusedError:
    return RefusedError(TOO_LARGE, f"the body has more than {limit} bytes; send it in parts", field="body")
