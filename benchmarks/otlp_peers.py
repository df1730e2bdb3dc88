"""Other receivers of OTLP on the same bodies: python -m benchmarks.otlp_peers --phoenix BIN --mlflow BIN [--seconds N]

Phoenix and MLflow are given as their command lines, installed from PyPI into environments of their own. Each receiver takes requests
for some seconds and is then killed with SIGKILL; printed are the spans that it acknowledged by then, and those that are still there
when its storage is read afterwards. Every span is sent once.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.live import environment, fresh_broker
from benchmarks.otlp import Bodies, made_bodies
from benchmarks.topic_records import read_all
from schemas.captures import Capture
from streams.cluster.garbage_collector import tune_gc
from streams.log.topic_setup import ensure_topics
from streams.log.topics import CAPTURES
from streams.log.wire import Codec

START_S = 180


class Sent(NamedTuple):
    """The outcome of sending."""

    spans: int
    seconds: float


async def send(url: str, bodies: Sequence[bytes], seconds: float, headers: dict[str, str], senders: int = 4) -> Sent:
    """Send each body once, until the time is over; the spans of a request count when it was answered with 200."""
    waiting, taken = list(reversed(bodies)), 0
    began = time.monotonic()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as client:

        async def sender() -> None:
            nonlocal taken
            while waiting and time.monotonic() < began + seconds:
                body = waiting.pop()
                async with client.post(url, data=BytesIO(body), headers=headers) as answer:
                    await answer.read()
                    taken += spans_of(body) if answer.status == 200 else 0

        await asyncio.gather(*(sender() for _ in range(senders)))
    return Sent(taken, time.monotonic() - began)


def spans_of(body: bytes) -> int:
    """The spans of a request."""
    blocks = ExportTraceServiceRequest.FromString(body).resource_spans
    return sum(len(scope.spans) for block in blocks for scope in block.scope_spans)


def free_port() -> int:
    """A port that is free now."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def ready(url: str) -> None:
    """Wait until a server answers."""
    async with aiohttp.ClientSession() as client:
        ends = time.monotonic() + START_S
        while True:
            with suppress(aiohttp.ClientError, OSError):
                async with client.get(url):
                    return
            if time.monotonic() > ends:
                raise SystemExit(f"{url} did not answer in {START_S} s")
            await asyncio.sleep(0.5)


def rows(database: Path, table: str = "spans") -> int:
    """The rows of a table of SQLite."""
    with closing(sqlite3.connect(database)) as stored:
        return int(stored.execute(f"select count(*) from {table}").fetchone()[0])


def peer(
    name: str, command: list[str], env: dict[str, str], base: str, path: str, told: Bodies, seconds: float,
    stored: Callable[[], int], headers: dict[str, str],
) -> None:  # fmt: skip
    """Print what one receiver acknowledged, and what it still has."""
    server = subprocess.Popen(
        command, env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        asyncio.run(ready(base))
        sent = asyncio.run(send(f"{base}{path}", told.bodies, seconds, headers))
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    kept = stored()
    print(
        f"{name:12} {sent.spans:7,} spans acknowledged in {sent.seconds:5.1f} s, {sent.spans / sent.seconds:8,.0f} a second; "
        f"{kept:7,} there after SIGKILL ({100 * kept / max(1, sent.spans):.1f} %)",
        flush=True,
    )


def ours(told: Bodies, seconds: float) -> None:
    """The same for the gateway, on a broker of its own."""
    with TemporaryDirectory() as folder, fresh_broker(Path(folder)) as started:
        settings, port = started.model_copy(update={"registry": ""}), free_port()
        asyncio.run(ensure_topics(settings))
        command = [sys.executable, "-m", "streams", "gateway", "--port", str(port), "--json", "--log-level", "error"]

        def stored() -> int:
            return sum(
                spans_of(held.body)
                for record in asyncio.run(read_all(settings, CAPTURES.name))
                if isinstance(held := Codec().decode(CAPTURES, record.value), Capture) and held.kind == "span"
            )

        base = f"http://127.0.0.1:{port}"
        peer("braid", command, environment(settings), base, "/v1/traces", told, seconds, stored, PROTOBUF)


PROTOBUF = {"Content-Type": "application/x-protobuf"}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phoenix", metavar="BIN")
    parser.add_argument("--mlflow", metavar="BIN")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--traces", type=int, default=2000)
    given = parser.parse_args()
    tune_gc()
    told = made_bodies("openinference", given.traces, 8)
    print(json.dumps({"bodies": len(told.bodies), "spans": told.spans, "bytes": told.size}))
    ours(told, given.seconds)
    if given.phoenix:
        with TemporaryDirectory() as folder:
            port, grpc = free_port(), free_port()
            env = {"PHOENIX_WORKING_DIR": folder, "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(grpc),
                   "PHOENIX_HOST": "127.0.0.1"}  # fmt: skip
            stored = Path(folder) / "phoenix.db"
            peer(
                "Phoenix", [given.phoenix, "serve"], env, f"http://127.0.0.1:{port}", "/v1/traces", told, given.seconds,
                lambda: rows(stored), PROTOBUF,
            )  # fmt: skip
    if given.mlflow:
        with TemporaryDirectory() as folder:
            port, stored = free_port(), Path(folder) / "mlflow.db"
            command = [given.mlflow, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
                       "--backend-store-uri", f"sqlite:///{stored}", "--artifacts-destination", f"{folder}/artifacts"]  # fmt: skip
            headers = PROTOBUF | {"x-mlflow-experiment-id": "0"}
            peer(
                "MLflow", command, {}, f"http://127.0.0.1:{port}", "/v1/traces", told, given.seconds,
                lambda: rows(stored), headers,
            )  # fmt: skip


if __name__ == "__main__":
    main()
