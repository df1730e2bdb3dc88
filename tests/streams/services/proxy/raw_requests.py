"""Requests byte by byte, as no HTTP library sends them."""

import asyncio
import re

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHAT = b"/r/t/b/0/openai/v1/chat/completions"


def request(target: bytes, body: bytes | None = b'{"play":{}}', *headers: bytes, method: bytes = b"POST") -> bytes:
    """A request; without a body it announces none."""
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: 127.0.0.1", *headers]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


async def answered(url: str, data: bytes, within_s: float = 10.0) -> tuple[int | None, bytes]:
    """Send bytes; the status of the answer and all of it, None where the connection is closed without any."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(within_s):
            told = await _whole(reader)
    except ConnectionError:
        told = b""
    finally:
        writer.close()
    return (int(told.split(b" ", 2)[1]) if told.startswith(b"HTTP/") else None), told


async def _whole(reader: asyncio.StreamReader) -> bytes:
    told = b""
    while piece := await reader.read(65536):
        told += piece
        head, end, body = told.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if end and (body.endswith(b"0\r\n\r\n") if length is None else len(body) >= int(length[1])):
            break
    return told
