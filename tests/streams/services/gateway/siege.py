"""Attackers of a gateway: many connections that send nothing, too little, or never read; and an honest client beside them."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

SLOW_HEADER = b"POST /v1/lines HTTP/1.1\r\nHost: 127.0.0.1\r\nX-" + b"a" * 1000
BODY = b"POST /v1/lines HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Send nothing."""
    await reader.read()


async def slow_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a header byte by byte."""
    await _drip(reader, writer, b"", SLOW_HEADER)


async def slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a header at once, then a body byte by byte."""
    await _drip(reader, writer, BODY, b" " * 1000)


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask for more than the system buffers, and read nothing of it."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /static-offline-docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 8)
    await reader.read()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at_once: bytes, rest: bytes) -> None:
    writer.write(at_once)
    for byte in rest:
        writer.write(bytes((byte,)))
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await reader.read()
                return


class Siege:
    """Attackers under way. Each begins anew, after a pause, when its connection was closed."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._tasks: list[asyncio.Task[None]] = []
        self.closed = 0
        self.connected = 0

    def add(self, attack: Attack, count: int, addresses: int = 1, pause: float = 1.0) -> None:
        """Begin to attack, from so many addresses of the loopback network."""
        for number in range(count):
            place = number % addresses
            address = (
                f"127.{1 + place // 60_000}.{place // 250 % 240}.{1 + place % 250}" if addresses > 1 else "127.0.0.1"
            )
            self._tasks.append(asyncio.create_task(self._attack(attack, address, pause)))

    async def _attack(self, attack: Attack, address: str, pause: float) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await self._connect(address)
                self.connected += 1
                try:
                    await attack(reader, writer)
                finally:
                    writer.transport.abort()
                    self.connected -= 1
                    self.closed += 1
            await asyncio.sleep(pause)

    async def _connect(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.bind((address, 0))
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, (self._host, self._port))
        except OSError:
            connection.close()
            raise
        return await asyncio.open_connection(sock=connection)

    async def end(self) -> None:
        """All attackers go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def besieged(url: str) -> AsyncIterator[Siege]:
    """A siege that ends with the block."""
    siege = Siege(url)
    try:
        yield siege
    finally:
        await siege.end()


async def honest(url: str, rollout: str, count: int, pause: float = 0.0) -> tuple[list[int], list[float]]:
    """Requests on new connections, one after the other: their statuses and how long they took."""
    statuses, seconds = [], []
    for seq in range(count):
        began = time.perf_counter()
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            item = {"seq": seq, "event": {"event": "step_start"}}
            answer = await client.post(f"/v1/rollouts/{rollout}/branches/0/events", json=item)
        statuses.append(answer.status_code)
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(pause)
    return statuses, seconds
