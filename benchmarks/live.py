"""benchmarks/live: one worker beside a plain Faust agent and a bare aiokafka loop, on one broker in one run; then latency.

    python -m benchmarks.live [--rollouts N] [--rounds N] [--latency-s S]

Ratios hold where absolute figures do not: the machine, the broker and the load are the same for all rows of the table.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.load import BRANCHES, BUSY, REAL, Shape, rollout_facts
from benchmarks.topic_records import read_all
from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.log.kafka_writer import FactWriter
from streams.log.topic_setup import ensure_topics
from streams.log.topics import AGENT_EVENTS, BY_RECORD, PPO, RANKINGS, changelog

PARTITIONS = 8


def environment(settings: Settings) -> dict[str, str]:
    """The variables of a process that uses these settings."""
    return os.environ | {
        "BRAID_KAFKA": settings.kafka,
        "BRAID_REGISTRY": settings.registry,
        "BRAID_PREFIX": settings.prefix,
        "BRAID_PARTITIONS": str(settings.partitions),
    }


async def produce(settings: Settings, rollouts: int, slice_size: int, shape: Shape) -> None:
    """Write a load, rollouts overlapping by ten."""
    async with FactWriter(settings, "bench") as writer:
        for first in range(0, rollouts, 10):
            group = [
                list(rollout_facts(f"bench-{number}", slice_size, shape))
                for number in range(first, min(first + 10, rollouts))
            ]
            for position in range(len(group[0])):
                for facts in group:
                    await writer.write(facts[position])


def run_worker(settings: Settings, rollouts: int, folder: Path) -> tuple[float, list[float]]:
    """Seconds from ready to the last closing, and the worker's memory (MB) on the way."""
    log = folder / "worker.log"
    memory: list[float] = []
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli", "worker"], env=environment(settings), stderr=out
        )
    try:
        watched = psutil.Process(process.pid)
        while log.read_bytes().count(b'"event": "closed"') < rollouts:
            if process.poll() is not None:
                raise RuntimeError(f"the worker ended: {log.read_text()[-2000:]}")
            memory.append(watched.memory_info().rss / 1e6)
            time.sleep(0.5)
    finally:
        process.terminate()
        process.wait(20)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    ready = next(line for line in lines if line["event"] == "ready")
    last = [line for line in lines if line["event"] == "closed"][-1]
    moments = [datetime.fromisoformat(line["timestamp"]) for line in (ready, last)]
    return (moments[1] - moments[0]).total_seconds(), memory


async def latencies(settings: Settings, seconds: float, folder: Path) -> list[float]:
    """Milliseconds from a rollout's last fact to its first training row, at 1,000 events a second, by the broker's clock."""
    log = folder / "latency.log"
    rollouts = max(4, int(seconds * 1000 / (BUSY.events * BRANCHES)))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli", "worker"], env=environment(settings), stderr=out
        )
    try:
        async with FactWriter(settings, "bench") as writer:
            while b'"event": "ready"' not in log.read_bytes():
                await asyncio.sleep(0.1)
            await asyncio.sleep(2)
            for number in range(rollouts):
                facts = list(rollout_facts(f"paced-{number}", 16))
                began, pause = time.monotonic(), BUSY.events * BRANCHES / 1000 / len(facts)
                for position, fact in enumerate(facts):
                    await writer.write(fact)
                    await writer.flush()
                    await asyncio.sleep(max(0.0, began + pause * (position + 1) - time.monotonic()))
        while log.read_bytes().count(b'"event": "closed"') < rollouts:
            await asyncio.sleep(0.2)
    finally:
        process.terminate()
        process.wait(20)
    last: dict[bytes, int] = {}
    for topic in (AGENT_EVENTS, *(topic for topic in BY_RECORD.values() if "verdicts" in topic.name)):
        for stored in await read_all(settings, settings.prefix + topic.name):
            last[stored.key or b""] = max(last.get(stored.key or b"", 0), stored.timestamp)
    first: dict[bytes, int] = {}
    for stored in await read_all(settings, settings.prefix + PPO.name):
        first[stored.key or b""] = min(first.get(stored.key or b"", stored.timestamp), stored.timestamp)
    return sorted(float(first[key] - last[key]) for key in first)


async def main() -> None:
    """Run all rows and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rollouts", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--latency-s", type=float, default=20)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape in (BUSY, REAL):
            await _compare(given.rollouts, given.rounds, shape, folder)
        with fresh_broker(folder) as settings:
            await _latency(settings, given.latency_s, folder)


@contextmanager
def fresh_broker(folder: Path, partitions: int = PARTITIONS) -> Iterator[Settings]:
    """A broker without anything in it: one that has much is slower."""
    endpoint = broker.start(folder / "broker", places.cache_dir())
    try:
        yield Settings(kafka=endpoint.bootstrap, registry=endpoint.registry or "", partitions=partitions)
    finally:
        broker.stop(folder / "broker", wipe=True)


class Round(NamedTuple):
    """Events a second, all three on the same load right after each other."""

    plain: float
    bare: float
    worker: float


async def _round(base: Settings, rollouts: int, shape: Shape, folder: Path) -> tuple[Round, list[float]]:
    packed = base.model_copy(update={"prefix": "packed."})
    single = base.model_copy(update={"prefix": "single."})
    await produce(packed, rollouts, 16, shape)
    singles = max(1, rollouts // 10)
    await produce(single, singles, 1, shape)
    topic, events = single.prefix + AGENT_EVENTS.name, singles * BRANCHES * shape.events
    plain = _script(single, "benchmarks.plain_faust", base.kafka, topic, str(events), str(PARTITIONS))
    await ensure_topics(packed.model_copy(update={"prefix": packed.prefix + "bare."}))
    bare = _script(packed, "benchmarks.bare_loop", str(rollouts))
    seconds, memory = await asyncio.to_thread(run_worker, packed, rollouts, folder)
    assert len(await read_all(packed, packed.prefix + RANKINGS.name)) >= rollouts
    return Round(plain, bare, rollouts * BRANCHES * shape.events / seconds), memory


async def _compare(rollouts: int, rounds: int, shape: Shape, folder: Path) -> None:
    found = []
    for number in range(rounds):
        with fresh_broker(folder) as settings:
            measured, memory = await _round(settings, rollouts, shape, folder)
            changelogs = await _changelogs(settings, rollouts)
        found.append(measured)
        print(f"round {number + 1}: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in measured._asdict().items()))
    print(f"\n{shape.name}: {rollouts} rollouts x {BRANCHES} branches x {shape.events} events")
    print(f"{PARTITIONS} partitions, one process each; medians of {rounds} rounds\n")
    print(f"{'path':<58}{'events/s':>10}{'ours is':>12}")
    for what, name in (
        ("plain Faust agent, one event per record, decoded", "plain"),
        ("bare aiokafka loop, the same fold, slices of 16", "bare"),
        ("braid worker, slices of 16", "worker"),
    ):
        rate = statistics.median(getattr(each, name) for each in found)
        ratio = statistics.median(each.worker / getattr(each, name) for each in found)
        print(f"{what:<58}{rate:>10,.0f}" + (f"{ratio:>11.2f}x" if name != "worker" else ""))
    print(
        f"\nmemory of the worker: {memory[len(memory) // 4]:.0f} MB after a quarter of the time, {memory[-1]:.0f} MB at the end"
    )
    print(f"{changelogs}\n")


async def _changelogs(base: Settings, rollouts: int) -> str:
    packed, lines = base.model_copy(update={"prefix": "packed."}), []
    for table in ("closed", "rollouts"):
        rows = await read_all(packed, changelog(packed.group, table))
        size = sum(len(row.value or b"") for row in rows) / max(1, len(rows))
        lines.append(f"changelog of `{table}`: {len(rows) / rollouts:.1f} records a rollout, {size:.0f} bytes each")
    return "\n".join(lines)


def _script(settings: Settings, module: str, *arguments: str) -> float:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment(settings), capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


async def _latency(base: Settings, seconds: float, folder: Path) -> None:
    found = await latencies(base.model_copy(update={"prefix": "paced."}), seconds, folder)
    p99 = found[min(len(found) - 1, int(0.99 * len(found)))]
    print(f"\nfrom the last fact to the first training row at 1,000 events/s ({len(found)} rollouts):", end=" ")
    print(f"median {statistics.median(found):.0f} ms, p99 {p99:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main())
