"""A gateway under attack: connections that send nothing, too little or never read do not keep honest requests out."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest

from streams.cluster.config import Settings
from streams.services.web.crowd import SPARE, Crowd, Entry
from streams.services.web.guard import address_of
from tests.streams.services.gateway.serving import serving, with_gateway
from tests.streams.services.gateway.siege import BODY, besieged, deaf, honest, silent, slow_body, slow_header

ROOT = Path(__file__).parents[4]
STRICT: dict[str, Any] = {"header_s": 0.4, "body_grace_s": 0.4, "answer_s": 0.4, "keep_alive_s": 0.4}


@pytest.fixture(scope="module")
def strict_url(house: Settings, open_url: str) -> Iterator[str]:
    """A gateway with little patience and few places."""
    limits = STRICT | {"max_connections": 200, "max_connections_per_address": 100}
    with serving(with_gateway(house, **limits)) as url:
        yield url


def cut(url: str, reason: str) -> float:
    """Connections that a gateway has closed for a reason."""
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith(f'braid_gateway_connections_cut_total{{reason="{reason}"}}'):
            return float(line.split()[-1])
    return 0.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that has to come."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


@pytest.mark.kafka
async def test_honest_requests_go_through_a_siege(strict_url: str, rollout: str) -> None:
    """Three hundred silent connections from the client's own address, slow headers and slow bodies; every request is taken."""
    async with besieged(strict_url) as siege:
        siege.add(silent, 300)
        siege.add(slow_header, 20)
        siege.add(slow_body, 20)
        await until(lambda: siege.connected > 100)
        statuses, _ = await honest(strict_url, rollout, 20)
        await until(lambda: siege.closed >= 340)
    assert statuses == [202] * 20
    assert cut(strict_url, "header") > 0


@pytest.mark.kafka
async def test_an_answer_that_is_not_read_ends_its_connection(strict_url: str) -> None:
    """Neither its buffers nor its place are kept."""
    before = cut(strict_url, "unread")
    async with besieged(strict_url) as siege:
        siege.add(deaf, 2)
        await until(lambda: cut(strict_url, "unread") >= before + 2)


@pytest.mark.kafka
async def test_a_slow_body_is_answered_with_408(strict_url: str) -> None:
    """The answer says how fast a body has to come."""
    reader, writer = await asyncio.open_connection(*_place(strict_url))
    writer.write(BODY + b" ")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 408")
    assert orjson.loads(body)["errors"][0]["reason"] == "the body came slower than 1024 bytes a second for 0.4 s"


@pytest.mark.kafka
async def test_a_body_that_stops_after_a_fast_beginning_is_cut(strict_url: str) -> None:
    """Bytes that came early buy no time."""
    reader, writer = await asyncio.open_connection(*_place(strict_url))
    writer.write(BODY + b" " * 60_000)
    assert (await reader.read()).startswith(b"HTTP/1.1 408")
    writer.close()


@pytest.mark.kafka
async def test_a_slow_and_steady_body_is_taken(strict_url: str, rollout: str) -> None:
    """Faster than the limit, though it needs longer than the grace."""

    async def drip() -> Any:
        yield b'{"seq": 0, "event": {"event": "step_start"}}'
        for _ in range(8):
            await asyncio.sleep(0.1)
            yield b" " * 1000

    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.post(f"{strict_url}/v1/rollouts/{rollout}/branches/0/events", content=drip())
    assert answer.status_code == 202


@pytest.mark.kafka
async def test_the_rest_of_an_answered_body_is_not_waited_for(strict_url: str) -> None:
    """A request that was refused at its header holds its connection no longer than the grace."""
    reader, writer = await asyncio.open_connection(*_place(strict_url))
    writer.write(BODY.replace(b"/v1/lines", b"/v1/nothing"))
    async with asyncio.timeout(30):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
        while await _is_open(reader, writer):
            writer.write(b" ")
    writer.transport.abort()


@pytest.mark.kafka
async def test_connections_without_a_request_are_closed(strict_url: str) -> None:
    """Kept alive for a while, then not."""
    reader, writer = await asyncio.open_connection(*_place(strict_url))
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    async with asyncio.timeout(30):
        assert (await reader.read()).endswith(b"ok\n")
    writer.close()


@pytest.mark.kafka
async def test_health_routes_are_outside_the_limits(house: Settings, open_url: str) -> None:
    """When every connection has a request under way, others are told to come back, and health is still answered."""
    with serving(with_gateway(house, max_connections=2, body_grace_s=60)) as url:
        busy = [await asyncio.open_connection(*_place(url)) for _ in range(2)]
        for _, writer in busy:
            writer.write(BODY)
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            await until(lambda: httpx.post(f"{url}/v1/lines", json={}).status_code == 503)
            answers = [await client.get(path) for path in ("/healthz", "/readyz", "/metrics")]
            refused = await client.post("/v1/lines", json={})
        await _hang_up(busy)
    assert [answer.status_code for answer in answers] == [200] * 3
    assert refused.json()["errors"][0]["reason"] == "all connections are in use; try again in a moment"
    assert int(refused.headers["retry-after"]) > 0


@pytest.mark.kafka
async def test_an_address_with_too_many_connections_loses_the_oldest(
    house: Settings, open_url: str, rollout: str
) -> None:
    """Its next request is taken, and other addresses do not notice."""
    with serving(with_gateway(house, max_connections_per_address=3)) as url:
        waiting = [await asyncio.open_connection(*_place(url)) for _ in range(5)]
        other = await asyncio.open_connection(*_place(url), local_addr=("127.0.0.2", 0))
        async with asyncio.timeout(30):
            await asyncio.gather(*(reader.read() for reader, _ in waiting[:2]), return_exceptions=True)
        statuses, _ = await honest(url, rollout, 1)
        assert statuses == [202]
        assert await _is_open(*other)
        assert await _is_open(*waiting[-1])
        await _hang_up([*waiting, other])


def test_the_oldest_that_never_sent_a_request_goes_first() -> None:
    """Then those kept alive; one with a request under way stays."""
    crowd: Crowd[str] = Crowd(limit=10, limit_per_address=1)
    for moment, name in enumerate(("works", "idle", "older", "newer")):
        crowd.enter(name, "address", moment)
    crowd.works("works")
    crowd.works("idle")
    crowd.waits("idle", 4)
    assert crowd.trim(before=10) == ["older", "newer", "idle"]
    assert len(crowd) == 1


def test_new_connections_are_not_closed_before_they_could_be_read() -> None:
    """Trimming leaves those that came since the time it is told."""
    crowd: Crowd[int] = Crowd(limit=10, limit_per_address=2)
    for name in range(5):
        assert crowd.enter(name, "address", now=name) == Entry(False, ())
    assert crowd.trim(before=2) == [0, 1]
    assert crowd.trim(before=9) == [2]


def test_twice_the_limit_is_never_exceeded() -> None:
    """Then the oldest has to go at once, of the address that has too many if that is the one that comes."""
    crowd: Crowd[int] = Crowd(limit=3, limit_per_address=2)
    for name in range(6):
        assert crowd.enter(name, "other" if name == 0 else "address", now=name).evicted == ()
    assert crowd.enter(6, "address", now=6).evicted == (1,)
    assert crowd.enter(7, "third", now=7).evicted == (0,)
    assert len(crowd) == 6


def test_spare_connections_are_few() -> None:
    """The oldest of them makes room."""
    crowd: Crowd[int] = Crowd(limit=1, limit_per_address=1)
    crowd.enter(-1, "address", now=0)
    crowd.works(-1)
    for name in range(SPARE):
        assert crowd.enter(name, "address", now=name) == Entry(True, ())
    assert crowd.enter(SPARE, "address", now=99) == Entry(True, (0,))
    assert len(crowd) == 1 + SPARE


def test_addresses_of_one_network_are_one_sender() -> None:
    """IPv6 gives every client 2^64 of them."""
    assert address_of(("2001:db8::1", 1)) == address_of(("2001:db8::ffff:2", 2)) != address_of(("2001:db8:0:1::1", 1))
    assert address_of(("::ffff:10.0.0.1", 1)) == address_of(("10.0.0.1", 2)) == "10.0.0.1"
    assert address_of(None) == ""


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.parametrize("addresses", [1, 5000])
async def test_five_thousand_silent_connections_and_two_hundred_slow_bodies_for_a_minute(
    house: Settings, open_url: str, rollout: str, addresses: int
) -> None:
    """With the limits as they are configured by default, in a process of its own: memory and files stay bounded."""
    process, url = _gateway(house)
    attackers = None
    try:
        await honest(url, rollout, 20)
        watched = psutil.Process(process.pid)
        memory, files, statuses, seconds = [watched.memory_info().rss], [watched.num_fds()], [], []
        attackers = subprocess.Popen(
            [sys.executable, "-m", "tests.streams.services.gateway.test_siege", url, str(addresses)], cwd=ROOT
        )
        steady = asyncio.create_task(_steady(url, rollout))
        while attackers.poll() is None:
            some, took = await honest(url, rollout, 10, pause=0.02)
            statuses, seconds = statuses + some, seconds + took
            memory.append(watched.memory_info().rss)
            files.append(watched.num_fds())
        seconds.sort()
        print(
            f"{addresses} addresses: {len(statuses)} honest requests, p50 {seconds[len(seconds) // 2] * 1000:.0f} ms, "
            f"p99 {seconds[len(seconds) * 99 // 100] * 1000:.0f} ms, longest {seconds[-1] * 1000:.0f} ms; "
            f"memory {memory[0] >> 20} to {max(memory) >> 20} MiB, files {files[0]} to {max(files)}"
        )
        assert statuses == [202] * len(statuses)
        assert (await steady).status_code == 202
        assert max(memory) - memory[0] < 128 * 1024 * 1024
        assert max(files) < 2 * 4096 + 500
        await until(lambda: watched.num_fds() < files[0] + 50)
    finally:
        process.kill()
        process.communicate()
        if attackers is not None:
            attackers.kill()
            attackers.wait()


async def _steady(url: str, rollout: str) -> httpx.Response:
    """A client with little bandwidth: 800 KB, 20 KB a second."""

    async def drip() -> Any:
        yield b'{"seq": 0, "event": {"event": "step_start"}}'
        for _ in range(400):
            await asyncio.sleep(0.1)
            yield b" " * 2000

    async with httpx.AsyncClient(timeout=120) as client:
        return await client.post(f"{url}/v1/rollouts/{rollout}/branches/1/events", content=drip())


def _gateway(settings: Settings) -> tuple[subprocess.Popen[str], str]:
    environment = os.environ | {
        "BRAID_KAFKA": settings.kafka, "BRAID_REGISTRY": settings.registry, "BRAID_PREFIX": settings.prefix,
        "BRAID_PARTITIONS": str(settings.partitions),
    }  # fmt: skip
    words = [sys.executable, "-m", "streams.cli", "gateway", "--port", "0", "--json", "--log-level", "error"]
    process = subprocess.Popen(words, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = orjson.loads(process.stdout.readline())["url"]
    while httpx.get(f"{url}/readyz").status_code != 200:
        time.sleep(0.1)
    return process, url


async def _attack(url: str, addresses: int) -> None:
    async with besieged(url) as siege:
        siege.add(silent, 5000, addresses, pause=5)
        siege.add(slow_body, 200, pause=5)
        await asyncio.sleep(60)


def _place(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    return parsed.host, parsed.port or 80


async def _hang_up(connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in connections:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in connections), return_exceptions=True)


async def _is_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    try:
        async with asyncio.timeout(0.1):
            await writer.drain()
            return bool(await reader.read(1000))
    except TimeoutError:
        return True
    except OSError:
        return False


if __name__ == "__main__":
    asyncio.run(_attack(sys.argv[1], int(sys.argv[2])))
