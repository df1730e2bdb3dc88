"""benchmarks/replay: branches a second from an archive and from Kafka, where the time goes, and memory.

    python -m benchmarks.replay [--branches N] [--full] [--no-kafka]

Rates are those of the whole command, with starting Python and looking at the log. The log is generated: rollouts of four branches,
about 8 events and 5 KB a branch, verdicts, votes and decisions. `--full` adds a log three times as long: memory has to stay the same.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from agents.facts.fact import Fact
from agents.rollouts.decision import decide
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from benchmarks.live import environment, fresh_broker, run_worker
from schemas.closures import Closure, RolloutSettled
from schemas.emission import EmissionConfig
from schemas.events import AgentEvent, AgentEvents
from schemas.jsontext import compact
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_producer
from streams.log.container import read_partition
from streams.log.file_writer import LogWriter
from streams.log.manifest import described, seal
from streams.log.record import LogRecord
from streams.log.topic_setup import ensure_topics
from streams.log.topics import BY_RECORD, FACTS, Topic
from streams.log.wire import Codec

PARTITIONS = 8
BRANCHES = 4
TEMPLATES = 200
"""Rollouts that differ in content; the others are copies of them under other ids."""
ID = "bench-{:07d}"
UNSENT = 2000
START_MS = 1_768_000_000_000

_LINE = "tests/test_{0}.py::test_{1} PASSED and some words about what was seen on the way to it\n"


def branch_events(number: int, branch: int) -> list[AgentEvent]:
    """Eight events, about 5 KB: a task, two steps of which one calls a tool with a long output, and an answer."""
    output = "".join(_LINE.format(number, line) for line in range(45)) + f"{branch + 3} passed, {branch % 2} failed\n"
    command = f"python -m pytest -q tests/test_{number}.py --maxfail={branch + 1}"
    said = f"I look at how module {number} is tested before I change it, and run what is there. " * 4
    events: list[tuple[str, str, dict[str, object]]] = [
        ("text", "run_start", {"task": f"Mend module {number}", "agentConfig": {"model": "m", "tools": ["run"]}}),
        ("thinking", "step_start", {"step": 0}),
        ("thinking", "thinking_delta", {"delta": said, "step": 0}),
        ("model", "model_done", {"modelId": "m", "step": 0, "inputTokens": 900, "outputTokens": 80}),
        ("tool", "tool_call", {"toolName": "run", "args": {"command": command}, "callId": "c0", "stepIndex": 0}),
        ("tool", "tool_result", {"callId": "c0", "output": output}),
        ("model", "model_done", {"modelId": "m", "step": 1, "inputTokens": 2100, "outputTokens": 130}),
        ("text", "final_answer", {"answer": f"Module {number} is mended as branch {branch} would do it."}),
    ]
    return [
        AgentEvent(trace_id="t", channel=channel, event=kind, data=compact(data), timestamp_ms=START_MS + at)
        for at, (channel, kind, data) in enumerate(events)
    ]


def rollout_facts(number: int) -> list[Fact]:
    """All facts of a rollout but its decisions: two branches pass, two fail, each tier has a vote in every order."""
    name = ID.format(number)
    opened = RolloutOpened(rollout_id=name, task=f"Mend module {number}", branches=BRANCHES, required=("build",))
    facts: list[Fact] = [Lifecycle(opened=opened)]
    for branch in range(BRANCHES):
        events = tuple(branch_events(number, branch))
        facts.append(AgentEvents(rollout_id=name, branch_index=branch, events=events))
    for branch in range(BRANCHES):
        status, code = (("success", 0), ("failure", 1))[branch % 2]
        plain = {"rollout_id": name, "branch_index": branch, "verdict_id": f"{name}/{branch}", "status": status}
        facts.append(BuildVerdict.model_validate(plain | {"exit_code": code}))
    for a, b in ((0, 2), (1, 3)):
        for sample in range(2):
            for order in ("ab", "ba"):
                plain = {
                    "vote_id": f"{name}/{a}{order}{sample}", "rollout_id": name, "a": a, "b": b, "order": order, "sample": sample,
                    "judge": "j", "preferred": "a" if (number + a) % 3 else "tie", "reasoning": "it is shorter",
                }  # fmt: skip
                facts.append(JudgeVote.model_validate(plain))
    return facts


def template(number: int) -> list[tuple[str, bytes]]:
    """A rollout's facts and decisions: topic and value, in the order in which they were written."""
    codec, rollout = Codec(), Rollout(ID.format(number))
    facts: list[Fact] = rollout_facts(number)
    for at, fact in enumerate(facts):
        rollout.add(fact, START_MS + at, ("t", 0, at))
    while (decision := decide(rollout, EmissionConfig(), ClosingPolicy(), START_MS + 10**9, {})) is not None:
        closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
        facts.append(closure)
        rollout.add(closure, START_MS + 50, ("c", 0, 0))
    return [(BY_RECORD[type(fact)].name, codec.encode(fact)) for fact in facts]


def generate(folder: Path, branches: int) -> int:
    """Write the log; returns the bytes of its events."""
    made = [template(number) for number in range(TEMPLATES)]
    size = 0
    with LogWriter(folder / "log", 64 * 1024 * 1024) as writer:
        for number in range(branches // BRANCHES):
            name, old = ID.format(number).encode(), ID.format(number % TEMPLATES).encode()
            partition = partition_of(name.decode(), PARTITIONS)
            for topic, value in made[number % TEMPLATES]:
                size += len(value)
                writer.append(topic, partition, name, value.replace(old, name), START_MS + number)
    seal(folder, "run", described(folder, (folder / "log").glob("*/*")), None, {})
    return size


class Watch(threading.Thread):
    """The largest PSS of any process of a replay. It is looked at twice a second: to look takes time of those that are measured."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.peak = 0.0
        self.start()

    def run(self) -> None:
        """Look until the process has ended."""
        while True:
            try:
                for each in [self._process, *self._process.children(recursive=True)]:
                    self.peak = max(self.peak, each.memory_full_info().pss / 1e6)
            except psutil.Error:
                if not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE:
                    return
            time.sleep(0.5)


def replay(*words: str, settings: Settings | None = None) -> tuple[dict[str, Any], float, float]:
    """Run `braid replay`; returns what it says, the seconds from the start of the command to its end, and the largest PSS."""
    command = [sys.executable, "-m", "streams.cli", "replay", "--json", *words]
    env = None if settings is None else environment(settings)
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env)
    watch = Watch(psutil.Process(process.pid))
    out, _ = process.communicate()
    seconds = time.monotonic() - began
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}")
    return json.loads(out), seconds, watch.peak


PLAIN = ("--no-evidence", "--set", "redact=false")


MADE = (
    ("fold, ranking, rows", (*PLAIN, "--dry-run")),
    ("fold, ranking, rows, written to files", PLAIN),
    ("redaction, evidence, too", ("--dry-run",)),
    ("redaction, signed evidence, too, written to files", ()),
    ("the same, closed anew", ("--reclose",)),
)


class Row(NamedTuple):
    """One replay."""

    what: str
    rate: float
    """Branches a second."""
    peak: float
    """The largest PSS of a process, in MB."""


def rows(name: str, source: list[str], branches: int, folder: Path, settings: Settings | None = None) -> Iterator[Row]:
    """The replays of one source."""
    for what, more in MADE:
        for processes in (1, 2):
            with tempfile.TemporaryDirectory(dir=folder) as out:
                target = () if "--dry-run" in more else ("--out", str(Path(out) / "out"))
                _, seconds, peak = replay(*source, *more, *target, "--processes", str(processes), settings=settings)
            yield Row(f"{name}: {what}; {processes} process{'es' if processes > 1 else ''}", branches / seconds, peak)


def show(found: Iterable[Row], live: float | None) -> None:
    """A line for each, as it comes."""
    for what, rate, peak in found:
        ratio = "" if live is None else f"{rate / live:.1f} x"
        print(f"{what:<78}{rate:>12,.0f}{ratio:>10}{peak:>10.0f}", flush=True)


def stages(directory: Path, branches: int) -> list[tuple[str, float]]:
    """CPU microseconds a branch by stage, one process, everything on."""
    from streams.jobs.crew.crew import Crew
    from streams.jobs.replay.partition_job import Job
    from streams.jobs.replay.processes import replay_place
    from streams.jobs.replay.replay import replay as run
    from streams.log.file_reader import FileReader

    async def whole() -> dict[str, float]:
        spans = await FileReader(directory).spans()
        done = await run(Job(directory=directory, spans=spans), Settings(), Crew(1, replay_place))
        return done.stages

    return [(name, seconds / branches * 1e6) for name, seconds in asyncio.run(whole()).items()]


def live_rate(base: Settings, folder: Path, rollouts: int) -> float:
    """Branches a second of the live worker on the same facts."""
    from streams.log.kafka_writer import FactWriter

    settings = base.model_copy(update={"prefix": "live."})

    async def produce() -> None:
        async with FactWriter(settings, "bench") as writer:
            for number in range(rollouts):
                for fact in rollout_facts(number):
                    await writer.write(fact)

    asyncio.run(produce())
    seconds, _ = run_worker(settings, rollouts, folder)
    return rollouts * BRANCHES / seconds


def main() -> None:
    """Run everything and print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--branches", type=int, default=100_000)
    arguments.add_argument("--full", action="store_true")
    arguments.add_argument("--no-kafka", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        size = generate(folder / "log", given.branches)
        print(
            f"{given.branches:,} branches, {size / given.branches:,.0f} bytes of facts a branch, {PARTITIONS} partitions\n"
        )
        print(f"{'source, what is made':<78}{'branches/s':>12}{'/ live':>10}{'PSS, MB':>10}")
        settings = live = None
        if not given.no_kafka:
            settings = stack.enter_context(fresh_broker(folder, PARTITIONS)).model_copy(update={"prefix": "bench."})
            live = live_rate(settings, folder, 1000)
            print(f"{'live worker, the same facts':<78}{live:>12,.0f}", flush=True)
        show(rows("archive", ["--from-dir", str(folder / "log")], given.branches, folder), live)
        if given.full:
            long = 3 * given.branches
            generate(folder / "long", long)
            _, seconds, peak = replay("--from-dir", str(folder / "long"), "--dry-run", "--processes", "2")
            show([Row(f"archive, {long:,} branches: everything; 2 processes", long / seconds, peak)], live)
        if settings is not None:
            asyncio.run(_upload(folder / "log", settings))
            show(rows("Kafka", [], given.branches, folder, settings), live)
        print("\nCPU microseconds a branch, redaction and evidence on, one process, nothing written")
        for stage, micros in stages(folder / "log", given.branches):
            print(f"  {stage:<30}{micros:>10.1f}")


async def _upload(directory: Path, settings: Settings) -> None:
    """Write the log to a broker, the topics of a partition in step with their times, as they come from agents and workers."""
    await ensure_topics(settings)
    producer = await start_producer(settings)
    try:
        for partition in range(PARTITIONS):
            unsent: list[asyncio.Future[Any]] = []
            for record, topic in merge(*(_dated(directory / "log", topic, partition) for topic in FACTS), key=_time):
                sent = producer.send(settings.prefix + topic.name, record.value, key=record.key, partition=partition)
                unsent.append(await sent)
                if len(unsent) >= UNSENT:
                    await asyncio.gather(*unsent)
                    unsent.clear()
            await asyncio.gather(*unsent)
    finally:
        await producer.stop()


def _dated(log: Path, topic: Topic, partition: int) -> Iterator[tuple[LogRecord, Topic]]:
    return ((record, topic) for record in read_partition(log, topic.name, partition))


def _time(each: tuple[LogRecord, Topic]) -> int:
    return each[0].at


if __name__ == "__main__":
    main()
