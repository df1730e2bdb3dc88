"""benchmarks/soak: a worker over many rollouts. Is its memory flat, does a rollout that stays open delay others, and how long
does a restart take that has to read far back?

    python -m benchmarks.soak [--rollouts N] [--behind N]
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil

from agents.facts.fact import Fact
from benchmarks.live import environment, fresh_broker
from benchmarks.topic_records import read_all
from schemas.events import AgentEvent, AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of
from streams.log.kafka_writer import FactWriter
from streams.log.topics import changelog

PARTITIONS = 8
IN_FLIGHT = 1000
"""Rollouts that are sent and not closed yet, at most."""
DAY_MS = 86_400_000
FACTS = 5
"""Of a rollout: its opening, two branches, two verdicts."""


def facts_of(name: str) -> Iterator[Fact]:
    """A small rollout: two branches that answer, one passes and one fails."""
    yield Lifecycle(opened=RolloutOpened(rollout_id=name, task="soak", branches=2, required=("build",)))
    for branch in range(2):
        said = AgentEvent(channel="text", event="final_answer", data=f'{{"answer":"branch {branch} is done"}}')
        yield AgentEvents(rollout_id=name, branch_index=branch, events=(said,))
    for branch, (status, code) in enumerate((("success", 0), ("failure", 1))):
        plain = {"rollout_id": name, "branch_index": branch, "verdict_id": f"{name}/{branch}", "status": status}
        yield BuildVerdict.model_validate(plain | {"exit_code": code})


def kept_open(partitions: int) -> list[Fact]:
    """One rollout that never ends for each of the first partitions."""
    return [
        Lifecycle(opened=RolloutOpened(rollout_id=name, task="soak", branches=2, deadline_ms=DAY_MS))
        for name in one_each("open")[:partitions]
    ]


def one_each(stem: str) -> list[str]:
    """A name for each partition, in their order."""
    names: dict[int, str] = {}
    for number in range(1000):
        names.setdefault(partition_of(f"{stem}-{number}", PARTITIONS), f"{stem}-{number}")
    return [names[partition] for partition in range(PARTITIONS)]


class Worker:
    """`braid worker` as a process, and what its log says."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._log = log
        self._read = 0
        self.closed: dict[str, float] = {}
        self.began = time.time()
        with log.open("wb") as out:
            command = [sys.executable, "-m", "streams.cli", "worker"]
            self.process = subprocess.Popen(command, env=environment(settings), stderr=out)
        self._watched = psutil.Process(self.process.pid)

    def look(self) -> None:
        """Read what the log says since the last look."""
        with self._log.open("rb") as source:
            source.seek(self._read)
            text = source.read()
        whole = text.rfind(b"\n") + 1
        self._read += whole
        for line in text[:whole].splitlines():
            if b'"event": "closed"' in line:
                said = json.loads(line)
                self.closed[said["rollout"]] = datetime.fromisoformat(said["timestamp"]).timestamp()
        if self.process.poll() is not None:
            raise RuntimeError(f"the worker ended: {self._log.read_text()[-2000:]}")

    @property
    def memory(self) -> float:
        """MB."""
        return float(self._watched.memory_info().rss / 1e6)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


async def feed(settings: Settings, worker: Worker, rollouts: int, memory: list[tuple[int, float]]) -> dict[str, float]:
    """Send rollouts while the worker closes them; returns when the last fact of each was sent."""
    sent: dict[str, float] = {}
    async with FactWriter(settings, "soak") as writer:
        for fact in kept_open(1):
            await writer.write(fact)
        for first in range(0, rollouts, 100):
            for number in range(first, min(first + 100, rollouts)):
                for fact in facts_of(f"soak-{number}"):
                    await writer.write(fact)
            await writer.flush()
            now = time.time()
            sent |= {f"soak-{number}": now for number in range(first, min(first + 100, rollouts))}
            worker.look()
            while len(sent) - len(worker.closed) > IN_FLIGHT:
                await asyncio.sleep(0.02)
                worker.look()
            if first % max(100, rollouts // 10 // 100 * 100) == 0:
                memory.append((len(worker.closed), worker.memory))
        while len(worker.closed) < rollouts:
            await asyncio.sleep(0.1)
            worker.look()
    memory.append((len(worker.closed), worker.memory))
    return sent


async def soak(base: Settings, folder: Path, rollouts: int) -> None:
    """Memory, and the latency of rollouts beside one that stays open."""
    settings = base.model_copy(update={"prefix": "soak."})
    worker, memory = Worker(settings, folder / "soak.log"), []
    began = time.time()
    try:
        sent = await feed(settings, worker, rollouts, memory)
    finally:
        worker.kill()
    seconds = time.time() - began
    print(f"{rollouts:,} rollouts, {rollouts / seconds:,.0f} a second, one of partition 0 open all the time\n")
    print(f"{'closed':>10}{'memory, MB':>14}")
    for closed, used in memory:
        print(f"{closed:>10,}{used:>14.0f}")
    late = {True: [], False: []}  # type: dict[bool, list[float]]
    for name, at in sent.items():
        late[partition_of(name, PARTITIONS) == 0].append(worker.closed[name] - at)
    print("\nfrom the last fact to closing (the load runs ahead of the worker, so this is mostly waiting in line)")
    for beside, each in late.items():
        where = "in the partition of the open one" if beside else "in the others"
        ordered = sorted(each)
        print(f"  {where:<34} median {statistics.median(ordered):.2f} s, p99 {ordered[int(0.99 * len(ordered))]:.2f} s")
    for table in ("closed", "rollouts"):
        rows = await read_all(settings, changelog(settings.group, table))
        size = sum(len(row.value or b"") for row in rows)
        print(f"changelog of `{table}`: {len(rows) / rollouts:.2f} records a rollout, {size / rollouts:.0f} bytes")


async def restart(base: Settings, folder: Path, behind: int) -> None:
    """How long a killed worker takes to be where it was, when every partition has had a rollout open from the beginning."""
    settings = base.model_copy(update={"prefix": "restart."})
    async with FactWriter(settings, "soak") as writer:
        for fact in kept_open(PARTITIONS):
            await writer.write(fact)
    worker = Worker(settings, folder / "first.log")
    try:
        await feed(settings, worker, behind // FACTS, [])
        await asyncio.sleep(3)
    finally:
        worker.kill()
    again = Worker(settings, folder / "second.log")
    wanted = one_each("after")
    async with FactWriter(settings, "soak") as writer:
        for name in wanted:
            for fact in facts_of(name):
                await writer.write(fact)
    try:
        while not set(wanted) <= again.closed.keys():
            await asyncio.sleep(0.1)
            again.look()
    finally:
        again.kill()
    last = max(again.closed[name] for name in wanted)
    print(
        f"\nrestart with {behind:,} facts behind the commits: caught up {last - again.began:.1f} s after it was started"
    )


async def main() -> None:
    """Run both."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rollouts", type=int, default=50_000)
    arguments.add_argument("--behind", type=int, default=50_000)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with fresh_broker(folder, PARTITIONS) as settings:
            await restart(settings, folder, given.behind)
            await soak(settings, folder, given.rollouts)


if __name__ == "__main__":
    asyncio.run(main())
