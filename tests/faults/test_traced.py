"""Receiver, worker and broker are killed while traces come in over OTLP: every acknowledged span is there once, in its branch.

Each call of each branch has a text of its own, so that a span that is lost, doubled, or in another branch is seen.
"""

import asyncio
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from schemas.events import AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.log.topics import AGENT_EVENTS
from tests.agents.capture.test_span_fold import spoken
from tests.live import Worker, read_all, records_of, until

pytestmark = pytest.mark.kafka

CALLS = 3
PROTOBUF = {"Content-Type": "application/x-protobuf"}


class Gateway(Worker):
    """`braid gateway` in a process of its own; a restarted one has its port."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__(settings, folder / "gateway.log")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.words = ("gateway", "--port", str(self.port))


def body_of(number: int, call: int | None) -> bytes:
    """One span of a trace: its root, which names the branch, or a call."""
    request = ExportTraceServiceRequest()
    start = 1_794_000_000_000_000_000 + number * 1_000_000_000
    trace, root = (number + 1).to_bytes(16, "big"), bytes(7) + b"r"
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=trace)
    told: dict[str, str] = {}
    if call is None:
        span.span_id, span.name = root, "invoke_agent"
        span.start_time_unix_nano, span.end_time_unix_nano = start, start + 900_000_000
        told = {
            "gen_ai.operation.name": "invoke_agent",
            "braid.rollout_id": f"t{number // 4}",
            "braid.branch_index": str(number % 4),
        }
    else:
        span.span_id, span.parent_span_id, span.name = (call + 1).to_bytes(8, "big"), root, "chat"
        span.start_time_unix_nano = start + call * 1_000_000
        span.end_time_unix_nano = span.start_time_unix_nano + 500_000
        told = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
            "gen_ai.input.messages": spoken("user", f"{number}/{call}"),
            "gen_ai.output.messages": spoken("assistant", f"heard {number}/{call}"),
        }  # fmt: skip
    for key, value in told.items():
        span.attributes.add(key=key).value.string_value = value
    return bytes(request.SerializeToString())


class Senders:
    """Exporters that send each span until it is acknowledged."""

    def __init__(self, url: str, traces: int, pace_s: float) -> None:
        self.url = url
        self.traces = traces
        self.pace_s = pace_s
        self.acknowledged = 0
        self.retried = 0
        self._tries = count()

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=15)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64), timeout=timeout) as client:
            tasks = []
            for number in range(self.traces):
                tasks.append(asyncio.create_task(self._trace(client, number)))
                await asyncio.sleep(self.pace_s)
            await asyncio.gather(*tasks)

    async def _trace(self, client: aiohttp.ClientSession, number: int) -> None:
        for call in (*range(CALLS), None):  # children end first
            body = body_of(number, call)
            while True:
                try:
                    async with client.post(f"{self.url}/v1/traces", data=body, headers=PROTOBUF) as answer:
                        if answer.status == 200:
                            break
                        assert answer.status in (429, 500, 502, 503), answer.status
                except (aiohttp.ClientError, ConnectionError, TimeoutError):
                    pass
                self.retried += 1
                await asyncio.sleep(0.3)
            self.acknowledged += 1


async def run(
    settings: Settings, folder: Path, traces: int, kills: list[str], every_s: float, state: Path | None, idle_s: str
) -> None:
    """Send all traces, with faults on the way, and check the books."""
    async with FactWriter(settings, "test") as writer:
        for number in range((traces + 3) // 4):
            opened = RolloutOpened(rollout_id=f"t{number}", task="t", branches=4, required=(), judge_deadline_ms=1)
            await writer.write(Lifecycle(opened=opened))
    gateway = Gateway(settings, folder)
    worker = Worker(settings, folder / "worker.log", BRAID_CAPTURE__TRACE_IDLE_S=idle_s)
    with gateway, worker:
        senders = Senders(f"http://127.0.0.1:{gateway.port}", traces, every_s * len(kills) / traces)
        await asyncio.gather(senders.run(), _faults(kills, every_s, gateway, worker, state))
        assert senders.acknowledged == traces * (CALLS + 1)
        found: set[tuple[str, int]] = set()

        async def ended() -> bool:
            for each in (gateway, worker):
                if not each.alive:
                    each.start()
            told = await records_of(settings, AGENT_EVENTS)
            found.update(
                (e.rollout_id, e.branch_index)
                for e in told
                if isinstance(e, AgentEvents) and e.ended and e.rollout_id.startswith("t")
            )
            return len(found) >= traces

        try:
            await until(ended, f"{traces} branches ended", 420)
        except AssertionError:
            missing = [number for number in range(traces) if (f"t{number // 4}", number % 4) not in found]
            print(f"{len(missing)} branches have not ended: {missing[:20]}")
            raise
    await _audit(settings, traces)
    letters = await read_all(settings, f"{settings.prefix}rollouts.dead-letters.v1")
    print(f"{traces} traces, {len(kills)} kills: {senders.retried} requests sent again, {len(letters)} dead letters")


async def _faults(kills: list[str], every_s: float, gateway: Worker, worker: Worker, state: Path | None) -> None:
    for kill in kills:
        await asyncio.sleep(every_s)
        if kill == "broker":
            assert state is not None
            await asyncio.to_thread(broker.kill_kafka, state)
            await asyncio.sleep(1)
            await asyncio.to_thread(broker.start, state, places.cache_dir())
        else:
            (gateway if kill == "gateway" else worker).kill()
        for each in (gateway, worker):
            if not each.alive:
                each.start()


async def _audit(settings: Settings, traces: int) -> None:
    """Every call is there once, with its answer, in its branch; events are numbered without gaps."""
    events: dict[tuple[str, int], dict[int, tuple[str, str]]] = {}
    for piece in await records_of(settings, AGENT_EVENTS):
        assert isinstance(piece, AgentEvents)
        found = events.setdefault((piece.rollout_id, piece.branch_index), {})
        for place, event in enumerate(piece.events):
            told = found.setdefault(piece.first_seq + place, (event.event, event.data))
            assert told == (event.event, event.data), "a slice that was written again is the same"
    assert sorted(events) == sorted((f"t{number // 4}", number % 4) for number in range(traces))
    for number in range(traces):
        numbered = events[f"t{number // 4}", number % 4]
        assert sorted(numbered) == list(range(len(numbered)))
        messages = Counter(_said([numbered[seq] for seq in range(len(numbered))]))
        expected = [f"{number}/{call}" for call in range(CALLS)]
        assert messages == Counter([*expected, *(f"heard {each}" for each in expected)]), (number, messages)
        assert sum(kind == "model_call" for kind, _ in numbered.values()) == CALLS


def _said(events: list[tuple[str, str]]) -> Iterator[Any]:
    for kind, data in events:
        if kind == "message":
            yield json.loads(data)["content"]


async def test_a_killed_receiver_and_a_killed_worker_lose_no_acknowledged_span(
    settings: Settings, tmp_path: Path
) -> None:
    await run(settings, tmp_path, 24, ["gateway", "worker"], 1.0, None, "6")


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Path]]:
    """A broker that may be killed: it is this test's own."""
    state = tmp_path_factory.mktemp("traced-broker")
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
async def test_30_kills_of_receiver_worker_and_broker_over_1000_traces(
    own_broker: tuple[Settings, Path], tmp_path: Path
) -> None:
    settings, state = own_broker
    kills = ["gateway"] * 13 + ["worker"] * 13 + ["broker"] * 4
    random.Random(29).shuffle(kills)
    began = time.monotonic()
    await run(settings, tmp_path, 1000, kills, 4.0, state, "90")
    print(f"{time.monotonic() - began:.0f} s")
