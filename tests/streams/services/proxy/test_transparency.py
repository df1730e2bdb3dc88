"""Through the proxy a client sees what it would see without: status, headers that matter, bytes, their order and their time.

The broker is away in these tests: traffic does not need it.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from yarl import URL

from schemas.captures import Capture
from streams.cluster.config import Settings
from streams.log.topics import CAPTURES
from streams.log.wire import Codec
from streams.services.proxy.spool import _frames
from tests.live import until
from tests.streams.services.proxy.played_api import PlayedApi, played_api
from tests.streams.services.proxy.proxying import proxying, with_proxy

OURS = {"date", "server", "connection", "transfer-encoding", "keep-alive"}
"""Headers of a connection."""

PATHS = ("/v1/messages?beta=true", "/v1/chat/completions")


class Seen(NamedTuple):
    """An answer, as a client saw it."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    size: int
    digest: str
    is_cut: bool


async def seen(client: aiohttp.ClientSession, url: str, body: bytes) -> Seen:
    digest, size, is_cut = sha256(), 0, False
    async with client.post(
        url, data=BytesIO(body), headers={"content-type": "application/json", "x-api-key": "k"}
    ) as answer:
        try:
            async for piece in answer.content.iter_any():
                digest.update(piece)
                size += len(piece)
        except (aiohttp.ClientPayloadError, ConnectionError):
            is_cut = True
        headers = [
            (name.decode(), value.decode()) for name, value in answer.raw_headers if name.decode().lower() not in OURS
        ]
        return Seen(answer.status, answer.reason or "", tuple(headers), size, digest.hexdigest(), is_cut)


def plays(count: int, seed: int, large: int) -> list[tuple[str, bytes]]:
    """Calls of all kinds: paths and bodies."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        play: dict[str, Any] = {
            "seed": number,
            "kind": chance.choice(("stream", "stream", "whole")),
            "size": chance.choice((0, 10, 400, 20_000)),
        }
        play |= {"pieces": chance.randint(1, 40), "gzip": chance.random() < 0.15, "length": chance.random() < 0.3}
        if chance.random() < 0.15:
            play["status"] = chance.choice((400, 429, 500, 529))
        elif chance.random() < 0.1:
            play |= {"cut": chance.randint(1, 5), "gzip": False}
        elif chance.random() < 0.1:
            play["pause_s"] = 0.002
        history = [{"role": "user", "content": "x" * chance.choice((10, 3000))}]
        if number < large:
            play |= {"size": 20_000_000 // 8, "kind": "whole", "pieces": 300, "gzip": False, "cut": None, "status": 200}
            history = [{"role": "user", "content": "y" * 20_000_000}]
        found.append(
            (
                chance.choice(PATHS),
                json.dumps({"model": "m", "stream": True, "messages": history, "play": play}).encode(),
            )
        )
    return found


@pytest.fixture
async def api() -> AsyncIterator[PlayedApi]:
    async with played_api() as api:
        yield api


def away(tmp_path: Path, upstream: str, **changes: Any) -> Settings:
    """A proxy whose broker is away."""
    return with_proxy(Settings(kafka="127.0.0.1:1", prefix="t."), tmp_path / "spool", upstream, **changes)


async def compared(api: PlayedApi, url: str, calls: list[tuple[str, bytes]]) -> int:
    """Make all calls directly and through the proxy; returns how many were the same."""
    gate = asyncio.Semaphore(16)
    async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as client:

        async def both(number: int, path: str, body: bytes) -> bool:
            async with gate:
                place = f"{url}/r/t/b/{number % 50}/{'anthropic' if 'messages' in path else 'openai'}"
                direct, through = await seen(client, api.url + path, body), await seen(client, place + path, body)
                assert through == direct, (number, body[-300:])
                return True

        return sum(await asyncio.gather(*(both(number, *call) for number, call in enumerate(calls))))


async def test_500_calls_are_the_same_as_without_the_proxy(api: PlayedApi, tmp_path: Path) -> None:
    with proxying(away(tmp_path, api.url)) as url:
        assert await compared(api, url, plays(500, 1, large=1)) == 500


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_10_000_calls_are_the_same_as_without_the_proxy(api: PlayedApi, tmp_path: Path) -> None:
    with proxying(away(tmp_path, api.url, spool_bytes=2**31)) as url:
        assert await compared(api, url, plays(10_000, 2, large=20)) == 10_000


async def test_the_upstream_sees_the_request_as_it_was_sent_but_for_identity(api: PlayedApi, tmp_path: Path) -> None:
    body = b'{"model": "m",  "messages":[], "play": {}}'
    headers = {
        "Content-Type": "application/json", "Authorization": "Bearer sk-1", "x-odd": "ü", "User-Agent": "agent/1", "Accept-Encoding": "br",
        "X-Braid-Rollout": "r", "X-Braid-Branch": "3", "X-Braid-Token": "nothing",
    }  # fmt: skip
    async with aiohttp.ClientSession(skip_auto_headers=("Accept",)) as client:
        with proxying(away(tmp_path, api.url)) as url:
            await (
                await client.post(
                    URL(f"{url}/openai/v1/chat/completions?a=%2F&key=k%20y", encoded=True), data=body, headers=headers
                )
            ).read()
    (target, got, received) = api.requests[-1]
    assert got["x-odd"].encode("latin-1").decode() == "ü"
    assert (target, received) == ("/v1/chat/completions?a=%2F&key=k%20y", body)
    assert {name: got[name] for name in ("authorization", "user-agent", "accept-encoding", "content-type")} == {
        "authorization": "Bearer sk-1", "user-agent": "agent/1", "accept-encoding": "br", "content-type": "application/json",
    }  # fmt: skip
    assert got["host"] == api.url.removeprefix("http://")
    assert not [name for name in got if name.startswith("x-braid")]
    assert "accept" not in got


async def test_the_first_event_is_there_before_the_second_is_sent(api: PlayedApi, tmp_path: Path) -> None:
    body = json.dumps({"messages": [], "stream": True, "play": {"kind": "stream", "waits": True, "size": 50}}).encode()
    async with aiohttp.ClientSession() as client:
        with proxying(away(tmp_path, api.url)) as url:
            async with client.post(f"{url}/r/t/b/0/anthropic/v1/messages", data=body) as answer:
                first = await asyncio.wait_for(answer.content.readuntil(b"\n\n"), 60)
                assert first.startswith(b"event: message_start")
                api.go_on.set()
                assert (await answer.content.read()).endswith(b'data: {"type": "message_stop"}\n\n')


@pytest.mark.parametrize("path", ["/r/t/b/0/anthropic/v1/messages", "/anthropic/v1/other"])
async def test_a_client_that_hangs_up_reaches_the_upstream(api: PlayedApi, tmp_path: Path, path: str) -> None:
    body = json.dumps({"messages": [], "stream": True, "play": {"kind": "stream", "waits": True}}).encode()
    async with aiohttp.ClientSession() as client:
        with proxying(away(tmp_path, api.url)) as url:
            async with client.post(f"{url}{path}", data=body) as answer:
                await answer.content.readuntil(b"\n\n")
                answer.close()
            await asyncio.wait_for(api.hung_up.wait(), 60)
            if path.startswith("/r/"):
                await until(lambda: _has(tmp_path), "the cut call is captured", 60)
                (capture,) = spooled(tmp_path)
                told = json.loads(capture.body)
                assert (told["error"]["kind"], "response" in told) == ("cut", False)


async def _has(tmp_path: Path) -> bool:
    return bool(spooled(tmp_path))


def spooled(tmp_path: Path) -> list[Capture]:
    """The captures that wait in a spool."""
    codec = Codec()
    files = sorted((tmp_path / "spool").glob("*.captures"))
    return [codec.decode(CAPTURES, raw) for file in files for raw in _frames(file.read_bytes())[0]]  # type: ignore[misc]


async def test_a_full_spool_lets_calls_pass_and_says_that_they_are_not_captured(api: PlayedApi, tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as client:
        with proxying(away(tmp_path, api.url, spool_bytes=8000)) as url:
            marks = []
            for number in range(8):
                body = json.dumps({"messages": [{"role": "user", "content": f"{number}" * 2000}], "play": {}}).encode()
                async with client.post(f"{url}/r/t/b/0/openai/v1/chat/completions", data=body) as answer:
                    marks.append((answer.status, answer.headers.get("X-Braid-Captured")))
                    await answer.read()
            async with client.get(f"{url}/metrics") as answer:
                dropped = next(
                    line
                    for line in (await answer.text()).splitlines()
                    if line.startswith("braid_proxy_captures_dropped_total")
                )
    captures = [each for each in spooled(tmp_path) if each.source == "proxy"]
    kept = len(captures)
    assert len(spooled(tmp_path)) == kept + 1, "one note of those that are lost"
    assert 0 < kept < 8
    assert marks[0] == (200, None)
    assert marks[-1][0] == 200
    assert float(dropped.split()[1]) == 8 - kept


async def test_requests_over_the_limit_are_refused_and_a_dead_upstream_is_a_502(api: PlayedApi, tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as client:
        with proxying(away(tmp_path, api.url, max_body_bytes=5000)) as url:
            async with client.post(f"{url}/r/t/b/0/openai/v1/chat/completions", data=b"x" * 6000) as answer:
                assert answer.status == 413
        with proxying(away(tmp_path / "b", "http://127.0.0.1:1")) as url:
            async with client.post(f"{url}/r/t/b/0/openai/v1/chat/completions", data=b"{}") as answer:
                assert (answer.status, "could not be reached" in await answer.text()) == (502, True)
    (capture,) = spooled(tmp_path / "b")
    assert json.loads(capture.body)["error"]["kind"] == "connection"
