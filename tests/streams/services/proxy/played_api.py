"""A local server that plays model APIs byte by byte: each request says in its body what shall happen to it.

`play` in the JSON body: status, kind (stream or whole), size (bytes of text), pieces, pause_s, gzip, cut (after so many pieces), length
(send Content-Length). The answer depends on the play and a seed alone, so that the same call gives the same bytes.
"""

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

WORDS = {200: "OK", 400: "Bad Request", 429: "Too Many Requests", 500: "Internal Server Error", 529: "Overloaded"}


def answer_of(play: dict[str, Any], protocol: str) -> list[bytes]:
    """The pieces of the body that a play gives."""
    chance = random.Random(play.get("seed", 0))
    if play.get("status", 200) != 200:
        return [json.dumps({"type": "error", "error": {"type": "played", "message": f"as told {play}"}}).encode()]
    text = "".join(chance.choice('abc déf\n\t"ü😀') for _ in range(play.get("size", 100)))
    if play.get("kind") != "stream":
        whole = _whole(protocol, text)
        step = max(1, len(whole) // play.get("pieces", 1))
        return [whole[at : at + step] for at in range(0, len(whole), step)]
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)][: play.get("pieces", 20)] or [""]
    return [event.encode() for event in _events(protocol, pieces)]


def _whole(protocol: str, text: str) -> bytes:
    if protocol == "messages":
        return json.dumps(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
            }
        ).encode()
    return json.dumps(
        {
            "id": "c",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        }
    ).encode()


def _events(protocol: str, pieces: list[str]) -> list[str]:
    if protocol == "messages":
        told: list[dict[str, Any]] = [
            {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}
        ]
        told.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        told += [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": each}}
            for each in pieces
        ]
        told += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
        return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in told]
    made = [
        f"data: {json.dumps({'id': 'c', 'choices': [{'index': 0, 'delta': {'content': each}}]})}\n\n" for each in pieces
    ]
    return [*made, 'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', "data: [DONE]\n\n"]


class PlayedApi:
    """The server, and what it saw."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Target, headers by lower-case name, and body."""
        self.hung_up = asyncio.Event()
        self.go_on = asyncio.Event()
        """Set by a test to let a play with `waits` send its second piece."""
        self._open: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}
        """Connections that are served."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._open[task] = writer
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        finally:
            writer.close()
            del self._open[task]

    async def end(self) -> None:
        """End all connections: one that outlives its event loop is reported in another test."""
        served = list(self._open)
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*(task for task in served if task is not None), return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        target = head[0].split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await _body(reader, headers)
        self.requests.append((target, headers, body))
        play = json.loads(body)["play"] if body.startswith(b"{") and b'"play"' in body else {}
        protocol = "messages" if "/messages" in target else "chat"
        return await self._answer(reader, writer, play, answer_of(play, protocol))

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, play: dict[str, Any], pieces: list[bytes]
    ) -> bool:
        status = play.get("status", 200)
        kind = (
            "text/event-stream; charset=utf-8" if play.get("kind") == "stream" and status == 200 else "application/json"
        )
        headers = [
            f"HTTP/1.1 {status} {WORDS[status]}",
            f"Content-Type: {kind}",
            f"x-request-id: req_{play.get('seed', 0)}",
            "X-Odd: a",
            "X-Odd: b",
        ]
        if status == 429:
            headers.append("Retry-After: 7")
        if play.get("gzip"):
            headers.append("Content-Encoding: gzip")
            packed = gzip.compress(b"".join(pieces), mtime=0)
            pieces = [packed[at : at + 1000] for at in range(0, len(packed), 1000)]
        if play.get("length"):
            headers.append(f"Content-Length: {sum(map(len, pieces))}")
        else:
            headers.append("Transfer-Encoding: chunked")
        writer.write(("\r\n".join(headers) + "\r\n\r\n").encode())
        for number, piece in enumerate(pieces):
            if number == play.get("cut"):
                await writer.drain()
                await asyncio.sleep(0.02)  # what was sent is read before the reset
                writer.transport.abort()
                return False
            if number == 1 and play.get("waits"):
                await writer.drain()
                gone, going = asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(self.go_on.wait())
                await asyncio.wait({gone, going}, return_when=asyncio.FIRST_COMPLETED)
                going.cancel()
                if gone.done():
                    self.hung_up.set()
                    return False
                gone.cancel()
                with suppress(asyncio.CancelledError):
                    await gone
            writer.write(piece if play.get("length") else f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if play.get("pause_s"):
                await writer.drain()
                await asyncio.sleep(play["pause_s"])
        if not play.get("length"):
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readline()).strip(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


@asynccontextmanager
async def played_api() -> AsyncIterator[PlayedApi]:
    """The server on a free port of loopback."""
    api = PlayedApi()
    server = await asyncio.start_server(api._serve, "127.0.0.1", 0, limit=2**24)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        api.go_on.set()
        await api.end()
