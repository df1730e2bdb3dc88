"""More than the receiver can take: it stays within its memory, says when to come again, and loses nothing that it acknowledged."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from functools import cache
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.log.topics import CAPTURES
from tests.faults.test_traced import Gateway
from tests.live import read_all

pytestmark = pytest.mark.kafka

MAX_MB = 250
PROTOBUF = {"Content-Type": "application/x-protobuf"}
LARGE, SMALL = 12 * 1024 * 1024, 40 * 1024


PIECE = 64 * 1024

PATIENCE_S = 60.0
"""A machine that does other work at the same time is given longer."""


def body_of(number: int, size: int) -> bytes:
    """A span of a trace of its own, with a long attribute."""
    head, tail = template(size)
    return b"".join((head, (number + 1).to_bytes(16, "big"), tail))


@cache
def template(size: int) -> tuple[bytes, bytes]:
    """The bytes before and after the trace id of a body."""
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=b"the trace id's 16"[:16], span_id=b"12345678", name="work", start_time_unix_nano=1, end_time_unix_nano=2
    )  # fmt: skip
    span.attributes.add(key="text").value.string_value = "some words " * (size // 11)
    head, _, tail = request.SerializeToString().partition(span.trace_id)
    return head, tail


async def slowly(body: bytes) -> AsyncIterator[bytes]:
    """A body whose end comes late, as over a slow line."""
    for start in range(0, len(body), PIECE):
        if start + PIECE >= len(body) and start:
            await asyncio.sleep(0.5)
        yield body[start : start + PIECE]


async def load(settings: Settings, folder: Path, seconds: float) -> str:
    """Send more than is taken; returns what came of it."""
    async with FactWriter(settings, "test"):
        pass
    taken: set[str] = set()
    refused: dict[int, int] = {}
    without_pause = 0
    numbers = count()
    sent = 0
    with Gateway(settings, folder) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"  # type: ignore[attr-defined]
        until = time.monotonic() + seconds
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

            async def sender(size: int) -> None:
                nonlocal without_pause, sent
                while time.monotonic() < until or (not (taken and refused) and time.monotonic() < until + PATIENCE_S):
                    number = next(numbers)
                    body = body_of(number, size)
                    try:
                        async with client.post(f"{url}/v1/traces", data=slowly(body), headers=PROTOBUF) as answer:
                            await answer.read()
                            if answer.status == 200:
                                taken.add((number + 1).to_bytes(16, "big").hex())
                                sent += len(body)
                            else:
                                refused[answer.status] = refused.get(answer.status, 0) + 1
                                without_pause += "Retry-After" not in answer.headers
                                await asyncio.sleep(0.2)
                    except (aiohttp.ClientError, ConnectionError):
                        await asyncio.sleep(0.2)  # it is just starting

            await asyncio.gather(*(sender(LARGE if number < 40 else SMALL) for number in range(48)))
        assert gateway.process is not None
        status = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
        most = int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024
    found: set[str] = set()
    code = "import sys; from tests.streams.services.otlp.test_otlp_load import print_traces; print_traces(sys.argv[1:])"
    command = [sys.executable, "-c", code, settings.kafka, settings.registry, settings.prefix]
    found = set((await asyncio.to_thread(subprocess.check_output, command, env=os.environ)).decode().split())
    assert taken, "nothing was acknowledged"
    assert taken <= found, f"{len(taken - found)} acknowledged traces are not on the log"
    assert refused.keys() <= {429, 503}, refused
    assert refused, "it was never past its capacity"
    assert not without_pause
    assert most <= MAX_MB, f"{most:.0f} MB"
    return f"{len(taken)} taken, {sent / seconds / 1e6:.0f} MB/s, refused {refused}, most memory {most:.0f} MB"


def print_traces(place: list[str]) -> None:
    """Print the traces on the log."""
    settings = Settings(kafka=place[0], registry=place[1], prefix=place[2], partitions=4)
    for each in asyncio.run(read_all(settings, settings.prefix + CAPTURES.name)):
        name = dict(each.headers)["ce_id"].decode()
        print(name.removeprefix("otel-").partition("/")[0])


async def test_bursts_past_capacity_are_told_to_come_again(settings: Settings, tmp_path: Path) -> None:
    print(await load(settings, tmp_path, 4.0))


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_five_minutes_past_capacity_stay_within_250_mb(settings: Settings, tmp_path: Path) -> None:
    print(await load(settings, tmp_path, 300.0))
