"""Proxy, worker and broker are killed while branches run through the proxy: every call that a client saw complete is there, once.

Each try of each call has a text of its own, so that a call that is lost, doubled, or in another branch is seen.
"""

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from schemas.events import AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.log.topics import AGENT_EVENTS
from tests.live import Worker, assert_sinks_are_the_fold_of_the_log, records_of, until_closed

pytestmark = pytest.mark.kafka

STEPS = 4


class ProxyProcess(Worker):
    """`braid proxy` in a process of its own; a restarted one has its port and its spool."""

    def __init__(self, settings: Settings, folder: Path, upstream: str) -> None:
        super().__init__(settings, folder / "proxy.log")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.words = (
            "proxy", "--port", str(self.port), "--upstream", f"openai={upstream}", "--spool", str(folder / "spool"),
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


async def answers(request: web.Request) -> web.StreamResponse:
    """A model that repeats the last message, in a stream of three pieces."""
    body = json.loads(await request.read())
    words = f"heard {body['messages'][-1]['content']}"
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in (words[:5], words[5:9], words[9:]):
        chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": piece}}]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await asyncio.sleep(0.01)
    await response.write(
        b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    await response.write_eof()
    return response


@dataclass
class Agents:
    """Agents that ask until they are answered, and what they were answered."""

    proxy: str
    pace_s: float
    acknowledged: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    tries: Iterator[int] = field(default_factory=count)

    @property
    def answered(self) -> int:
        """Calls that were answered so far."""
        return sum(map(len, self.acknowledged.values()))

    async def run(self, client: aiohttp.ClientSession, rollout: str, branch: int) -> None:
        place = f"{self.proxy}/r/{rollout}/b/{branch}"
        messages: list[dict[str, str]] = []
        seen = self.acknowledged[rollout, branch] = []
        for step in range(STEPS):
            await asyncio.sleep(self.pace_s)
            while True:
                mark = f"{rollout}/{branch}/{step}/try-{next(self.tries)}"
                asked = [*messages, {"role": "user", "content": mark}]
                try:
                    body = {"model": "m", "stream": True, "messages": asked}
                    async with client.post(f"{place}/openai/v1/chat/completions", json=body) as answer:
                        text = (await answer.read()).decode()
                    if answer.status == 200 and text.endswith("[DONE]\n\n"):
                        break
                except (aiohttp.ClientError, ConnectionError, TimeoutError):
                    pass
                await asyncio.sleep(0.2)
            seen.append(mark)
            messages = [*asked, {"role": "assistant", "content": f"heard {mark}"}]
        while True:
            try:
                async with client.post(f"{place}/end") as answer:
                    if answer.status == 202:
                        return
            except (aiohttp.ClientError, ConnectionError):
                pass
            await asyncio.sleep(0.2)


async def run(
    settings: Settings, folder: Path, rollouts: int, branches: int, kills: list[str], every_s: float, state: Path | None,
    pace_s: float | None = None,
) -> None:  # fmt: skip
    """Run all branches through, with faults on the way, and check the books."""
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", answers)
    served = web.AppRunner(app, access_log=None)
    await served.setup()
    site = web.TCPSite(served, "127.0.0.1", 0)
    await site.start()
    upstream = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    names = [f"r{number}" for number in range(rollouts)]
    async with FactWriter(settings, "test") as writer:
        for name in names:
            opened = RolloutOpened(rollout_id=name, task="Repeat", branches=branches, required=(), judge_deadline_ms=1)
            await writer.write(Lifecycle(opened=opened))
    proxy, worker = ProxyProcess(settings, folder, upstream), Worker(settings, folder / "worker.log")
    with proxy, worker:
        agents = Agents(proxy.url, pace_s or every_s * len(kills) / (STEPS + 1))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            going = [agents.run(client, name, branch) for name in names for branch in range(branches)]
            await asyncio.gather(_faults(kills, every_s, agents, proxy, worker, state), *going)
        await _supervise(until_closed(settings, set(names), 240), proxy, worker)
        await _audit(settings, agents)
        assert not list((folder / "spool").glob("*.captures")) or not sum(
            file.stat().st_size for file in (folder / "spool").glob("*.captures")
        )
    await served.cleanup()


async def _supervise(waiting: object, *processes: Worker) -> None:
    """Wait, and start again whatever ended."""
    task = asyncio.ensure_future(waiting)  # type: ignore[arg-type]
    while not task.done():
        for each in processes:
            if not each.alive:
                each.start()
        await asyncio.wait({task}, timeout=0.5)
    await task


async def _faults(
    kills: list[str], every_s: float, agents: Agents, proxy: Worker, worker: Worker, state: Path | None
) -> None:
    for kill in kills:
        await asyncio.sleep(every_s)
        if kill.startswith("broker"):
            assert state is not None
            await asyncio.to_thread(broker.kill_kafka, state)
            before = agents.answered
            await asyncio.sleep(float(kill.partition(" ")[2] or 1))
            assert " " not in kill or agents.answered > before + 50, "agents go on while the broker is away"
            await asyncio.to_thread(broker.start, state, places.cache_dir())
        else:
            (proxy if kill == "proxy" else worker).kill()
        for each in (proxy, worker):
            if not each.alive:
                each.start()


async def _audit(settings: Settings, agents: Agents) -> None:
    """Every acknowledged call is there once, with its answer, in its branch; events are numbered without gaps."""
    events: dict[tuple[str, int], dict[int, tuple[str, str]]] = {key: {} for key in agents.acknowledged}
    for piece in await records_of(settings, AGENT_EVENTS):
        assert isinstance(piece, AgentEvents)
        found = events[piece.rollout_id, piece.branch_index]
        for place, event in enumerate(piece.events):
            told = found.setdefault(piece.first_seq + place, (event.event, event.data))
            assert told == (event.event, event.data), "a slice that was written again is the same"
    for key, acknowledged in agents.acknowledged.items():
        told = events[key]
        assert sorted(told) == list(range(len(told)))
        answered = Counter(_answered([told[seq] for seq in range(len(told))]))
        assert all(mark.startswith(f"{key[0]}/{key[1]}/") for mark in answered), "a call of another branch"
        assert [answered[mark] for mark in acknowledged] == [1] * STEPS, (key, acknowledged, answered)
    await assert_sinks_are_the_fold_of_the_log(settings)


def _answered(events: list[tuple[str, str]]) -> Iterator[str]:
    """The last message of every call that has its answer."""
    messages: dict[str, str] = {}
    for kind, data in events:
        told = json.loads(data)
        if kind == "message":
            messages[told["id"]] = told.get("content") or ""
        elif kind == "model_call" and "response" in told:
            mark = messages[told["context"]["add"][-1]]
            assert messages[told["response"]] == f"heard {mark}"
            yield mark


async def test_a_killed_proxy_and_a_killed_worker_lose_no_acknowledged_call(settings: Settings, tmp_path: Path) -> None:
    await run(settings, tmp_path, 3, 2, ["proxy", "worker", "proxy"], 1.0, None)


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Path]]:
    """A broker that may be killed: it is this test's own."""
    state = tmp_path_factory.mktemp("captured-broker")
    endpoint = broker.start(state, places.cache_dir())
    try:
        yield (
            Settings(
                kafka=endpoint.bootstrap, registry=endpoint.registry or "", state_dir=state, prefix="k.", partitions=4
            ),
            state,
        )
    finally:
        broker.stop(state, wipe=True)


@pytest.mark.faults
@pytest.mark.timeout(1800)
async def test_30_kills_of_proxy_worker_and_broker_over_300_branches(
    own_broker: tuple[Settings, Path], tmp_path: Path
) -> None:
    settings, state = own_broker
    kills = ["proxy"] * 14 + ["worker"] * 12 + ["broker"] * 4
    random.Random(7).shuffle(kills)
    await run(settings, tmp_path, 75, 4, kills, 5.0, state)


@pytest.mark.faults
@pytest.mark.timeout(1800)
async def test_agents_go_on_while_the_broker_is_away_for_two_minutes(
    own_broker: tuple[Settings, Path], tmp_path: Path
) -> None:
    settings, state = own_broker
    await run(settings, tmp_path, 10, 4, ["broker 120"], 15.0, state, pace_s=35.0)
