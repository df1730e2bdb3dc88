"""A proxy and a capture worker in threads, and a look at what they wrote."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from schemas.captures import Capture
from schemas.events import AgentEvents
from streams.cluster.config import Settings, Upstream
from streams.log.topics import AGENT_EVENTS, CAPTURES
from streams.services.capture.capture_worker import run_capture_worker
from streams.services.gateway.gateway_metrics import GatewayMetrics
from streams.services.proxy.proxy import Proxy
from streams.services.proxy.proxy_mount import create_gateway
from streams.services.proxy.proxy_server import ProxySite, runner_of
from streams.services.web.server import Server, address_of, listen
from tests.live import records_of, until


def with_proxy(settings: Settings, spool: Path, upstream: str, **changes: Any) -> Settings:
    """The settings with a proxy before one upstream, under two names."""
    upstreams = {name: Upstream(url=upstream) for name in ("openai", "anthropic")}
    config = settings.proxy.model_copy(update={"spool": spool, "upstreams": upstreams, **changes})
    return settings.model_copy(update={"proxy": config})


@contextmanager
def _threaded(main: Any) -> Iterator[None]:
    """Run a coroutine `main(stop, ready)` in a thread of its own until the block ends."""
    ready, ended = threading.Event(), list[BaseException]()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        await main(stop, ready)

    def thread() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run())
        except BaseException as error:  # noqa: BLE001 - told by the test
            ended.append(error)
        finally:
            ready.set()

    running = threading.Thread(target=thread, daemon=True)
    running.start()
    assert ready.wait(60)
    assert not ended, ended
    try:
        yield
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        running.join(30)
        assert not ended, ended


@contextmanager
def proxying(settings: Settings) -> Iterator[str]:
    """Run a proxy on a free port; gives its base URL."""
    bound = listen("127.0.0.1", 0)

    async def main(stop: asyncio.Event, ready: threading.Event) -> None:
        metrics = GatewayMetrics()
        proxy = Proxy(settings, metrics)
        await proxy.start()
        runner = runner_of(proxy, metrics)
        await runner.setup()
        await ProxySite(runner, bound).start()
        ready.set()
        await stop.wait()
        await runner.cleanup()
        await proxy.stop()

    with _threaded(main):
        yield address_of(bound).url


@contextmanager
def folding(settings: Settings) -> Iterator[None]:
    """Run a capture worker."""

    async def main(stop: asyncio.Event, ready: threading.Event) -> None:
        ready.set()
        await run_capture_worker(settings, stop=stop)

    with _threaded(main):
        yield


@contextmanager
def gateway_of(settings: Settings) -> Iterator[str]:
    """Run a gateway with the proxy in it; gives its base URL."""
    bound = listen("127.0.0.1", 0)

    async def main(stop: asyncio.Event, ready: threading.Event) -> None:
        server = Server(create_gateway(settings), ready.set)
        serving = asyncio.ensure_future(server.serve([bound]))
        await stop.wait()
        server.end()
        await serving

    with _threaded(main):
        yield address_of(bound).url


async def events_until_ended(settings: Settings, branches: int = 1) -> list[AgentEvents]:
    """All slices, once so many branches have ended."""
    found: list[AgentEvents] = []

    async def ended() -> bool:
        found[:] = await records_of(settings, AGENT_EVENTS)  # type: ignore[list-item]
        return sum(piece.ended for piece in found) >= branches

    await until(ended, f"{branches} branches ended", 60)
    return found


async def captures_of(settings: Settings) -> list[Capture]:
    """All captures."""
    return await records_of(settings, CAPTURES)  # type: ignore[return-value]
