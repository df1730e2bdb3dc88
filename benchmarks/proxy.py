"""Time to the first byte of a streamed answer: directly, through a bare aiohttp pass-through, and through the capturing proxy.

    python -m benchmarks.proxy [--rounds 5] [--calls 256] [--think 0.1]

Upstream, pass-through and proxy are processes of their own; the three ways alternate in every round, at 1, 16 and 64 streams. Printed
are medians over the rounds. Agents think for a random time between two calls; with `--think 0` all streams begin and end in the same
moment, which measures how much work a burst is. Beside the times stands the processor time of a call in the pass-through and in the
proxy, and how busy the whole machine was: near 100 % the times are those of a queue, and say little about the proxy. The proxy's
broker is the configured one (BRAID_KAFKA), or away: captures then go to its spool alone.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import psutil
import uvloop
from aiohttp import web

STREAMS = (1, 16, 64)
EVENTS = 20
PAUSE_S = 0.005
"""Between two events: a fast model, 200 tokens a second."""
MOST = 48
"""Calls of one stream in a round: alone it would take minutes."""

WAYS = ("direct", "bare", "proxy")
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 4000}]}


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of all lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# -- processes -------------------------------------------------------------------------------------------------------------


async def play(request: web.Request) -> web.StreamResponse:
    """A chat completion of some events."""
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(EVENTS):
        await response.write(b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"word %d "}}]}\n\n' % number)
        await asyncio.sleep(PAUSE_S)
    await response.write(
        b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    await response.write_eof()
    return response


def passing(upstream: str) -> web.Application:
    """The least that a pass-through does."""
    app = web.Application()

    async def session(app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as made:
            app["session"] = made
            yield

    async def handle(request: web.Request) -> web.StreamResponse:
        path = "/" + request.path.split("/openai/", 1)[1]
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in ("host", "transfer-encoding")
        }
        async with request.app["session"].request(
            request.method, upstream + path, headers=headers, data=request.content
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


def serve(what: str, upstream: str) -> None:
    """Run one of the two servers of this file; prints its port."""
    app = passing(upstream) if what == "bare" else web.Application(client_max_size=2**26)
    if what == "upstream":
        app.router.add_post("/v1/chat/completions", play)

    async def run() -> None:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(site._server.sockets[0].getsockname()[1], flush=True)  # type: ignore[union-attr]
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


class Served(NamedTuple):
    """A process that serves."""

    url: str
    process: psutil.Process

    @property
    def cpu_s(self) -> float:
        """Its processor seconds so far."""
        used = self.process.cpu_times()
        return float(used.user + used.system)


@asynccontextmanager
async def process(*words: str, **env: str) -> AsyncIterator[Served]:
    """A process that prints its address or port first."""
    started = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | env
    )
    assert started.stdout is not None
    try:
        said = await asyncio.to_thread(started.stdout.readline)
        port = said.rsplit(":", 1)[-1].split()[0].strip("/") if not said.strip().isdigit() else said.strip()
        yield Served(f"http://127.0.0.1:{port.split('/')[0]}", psutil.Process(started.pid))
    finally:
        started.terminate()
        started.wait()


# -- measuring -------------------------------------------------------------------------------------------------------------


async def first_bytes(url: str, streams: int, calls: int, think_s: float = 0.0) -> list[float]:
    """Milliseconds to the first byte of every call, with so many streams at once."""
    found: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def stream(number: int) -> None:
            chance = random.Random(number)
            for _ in range(min(MOST, max(1, calls // streams))):
                if think_s:
                    await asyncio.sleep(chance.random() * think_s)
                began = time.perf_counter()
                async with client.post(url.format(number=number), json=BODY) as answer:
                    await answer.content.readany()
                    found.append((time.perf_counter() - began) * 1000)
                    await answer.read()

        await asyncio.gather(*(stream(number) for number in range(streams)))
    return found


async def measure(rounds: int, calls: int, think_s: float) -> None:
    """Run everything and print the table."""
    me = (sys.executable, "-m", "benchmarks.proxy", "--serve")
    with tempfile.TemporaryDirectory(prefix="braid-bench-") as spool:
        kafka = os.environ.get("BRAID_KAFKA", "127.0.0.1:1")
        async with process(*me, "upstream") as upstream, process(*me, "bare", "--upstream", upstream.url) as bare:
            words = (
                sys.executable,
                "-m",
                "streams",
                "proxy",
                "--port",
                "0",
                "--upstream",
                f"openai={upstream.url}",
                "--spool",
                spool,
            )
            async with process(*words, BRAID_KAFKA=kafka, BRAID_PREFIX="bench.") as proxy:
                path = "/r/bench/b/{number}/openai/v1/chat/completions"
                ways = {
                    "direct": Way(f"{upstream.url}/v1/chat/completions", None),
                    "bare": Way(bare.url + path, bare),
                    "proxy": Way(proxy.url + path, proxy),
                }
                print(f"time to first byte in ms, medians of {rounds} rounds of {calls} calls; broker: {kafka}")
                print(
                    "streams  "
                    + "".join(f"{way + ' p50':>11}{'p99':>8}" for way in WAYS)
                    + f"{'x bare p50':>12}{'p99':>7}{'cpu ms bare':>13}{'proxy':>7}{'busy':>6}"
                )
                for streams in STREAMS:
                    await row(ways, streams, rounds, calls, think_s)


class Way(NamedTuple):
    """A way to the upstream."""

    url: str
    through: Served | None


async def row(ways: dict[str, Way], streams: int, rounds: int, calls: int, think_s: float) -> None:
    """One line of the table."""
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    for way in WAYS:
        await first_bytes(ways[way].url, streams, streams * 2)
    psutil.cpu_percent()
    for _ in range(rounds):
        for way in WAYS:
            through = ways[way].through
            before = through.cpu_s if through is not None else 0.0
            values = await first_bytes(ways[way].url, streams, calls, think_s)
            used = (through.cpu_s - before) * 1000 / len(values) if through is not None else 0.0
            found[way].append((percentile(values, 0.5), percentile(values, 0.99), used))
    medians = {way: tuple(statistics.median(each) for each in zip(*found[way], strict=True)) for way in WAYS}
    shown = "".join(f"{medians[way][0]:11.2f}{medians[way][1]:8.2f}" for way in WAYS)
    times = [medians["proxy"][at] / medians["bare"][at] for at in (0, 1)]
    cost = f"{medians['bare'][2]:13.2f}{medians['proxy'][2]:7.2f}{psutil.cpu_percent():5.0f}%"
    print(f"{streams:7}  {shown}{times[0]:12.2f}{times[1]:7.2f}{cost}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=256)
    parser.add_argument(
        "--think", type=float, default=0.1, help="longest pause of an agent between two calls, in seconds"
    )
    parser.add_argument("--serve", default="")
    parser.add_argument("--upstream", default="")
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.upstream)
    else:
        uvloop.run(measure(given.rounds, given.calls, given.think))
