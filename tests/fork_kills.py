"""`braid fork` killed at random moments and resumed: for the quick test and the long one."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path

import psutil

from agents.fork.history import History
from schemas.events import AgentEvents
from streams.cluster.config import Settings
from streams.log.topics import AGENT_EVENTS
from streams.services.fork.logs import file_log
from tests.live import records_of

BRANCHES = 4

SCRIPT = """
delay_ms = 40
[[shared]]
[[shared.call]]
tool = "read_file"
args.path = "table.py"
[[branch]]
[[branch.turn]]
trouble = ["overloaded"]
[[branch.turn.call]]
tool = "run"
args.command = "setsid sleep MARK & sleep 0.25; echo one > one.txt"
[[branch.turn.call]]
tool = "write_file"
args.path = "table.py"
args.content = "x = 1"
[[branch.turn]]
[[branch.turn.call]]
tool = "run"
args.command = "sleep 0.25; cat one.txt"
[[branch.turn]]
answer = "Done."
"""


class Killed:
    """Forks of one test: where they write, and what they may leave."""

    def __init__(self, folder: Path, settings: Settings | None) -> None:
        self.folder = folder
        self.settings = settings
        self.mark = f"90.{uuid.uuid4().int % 10**12}"
        self.script = folder / "script.toml"
        self.script.write_text(SCRIPT.replace("MARK", self.mark))
        self.env = os.environ | {"BRAID_STATE_DIR": str(folder / "state")}
        if settings is not None:
            self.env |= {
                "BRAID_KAFKA": settings.kafka, "BRAID_REGISTRY": settings.registry,
                "BRAID_PREFIX": settings.prefix, "BRAID_PARTITIONS": str(settings.partitions),
            }  # fmt: skip

    def start(self, rollout_id: str, *more: str) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-m",
            "streams.cli",
            "fork",
            "csv-table",
            "--branches",
            str(BRANCHES),
            "--concurrency",
            "3",
        ]
        command += ["--script", str(self.script), "--json", *more]
        if self.settings is None:
            command += ["--log", str(self.folder / f"{rollout_id}.ndjson")]
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    async def slices(self, rollout_id: str) -> list[AgentEvents]:
        """In the order of the log."""
        if self.settings is not None:
            found = await records_of(self.settings, AGENT_EVENTS)
            return [record for record in found if isinstance(record, AgentEvents) and record.rollout_id == rollout_id]
        history = await self.history(rollout_id)
        return [
            AgentEvents(rollout_id=rollout_id, branch_index=job.branch_index, attempt=job.attempt,
                        events=tuple(attempt.events[seq] for seq in sorted(attempt.events)), ended=attempt.ended)
            for job, attempt in history.attempts.items()
        ]  # fmt: skip

    async def history(self, rollout_id: str) -> History:
        async with file_log(self.folder / f"{rollout_id}.ndjson") as log:
            return await log.history(rollout_id)

    def strays(self) -> list[list[str]]:
        """Processes that belong to a fork of this test."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if self.mark in line or any(str(self.folder) in part for part in line):
                found.append(line)
        return found

    async def no_strays(self) -> None:
        ends = time.monotonic() + 60
        while self.strays():
            assert time.monotonic() < ends, self.strays()
            await asyncio.sleep(0.05)


async def kill_at_random(killed: Killed, running: "subprocess.Popen[str]", chance: random.Random) -> str:
    """SIGKILL at a random moment: mostly while branches run, sometimes while the runner starts; returns which."""
    if chance.random() < 0.2:
        moment = chance.uniform(0.1, 2.0)
        said = f"{moment:.2f} s after its start"
    else:
        assert running.stdout is not None
        await asyncio.to_thread(running.stdout.readline)
        moment = chance.uniform(0.0, 2.5)
        said = f"{moment:.2f} s into its branches"
    await asyncio.sleep(moment)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    await killed.no_strays()
    return said


async def kill_and_resume(killed: Killed, rollout_id: str, chance: random.Random) -> str:
    """Kill a fork, resume it (perhaps killed again on the way) until it completes; returns the moment of the first kill."""
    moment = await kill_at_random(killed, killed.start(rollout_id, "--id", rollout_id), chance)
    if chance.random() < 0.3:
        await kill_at_random(killed, killed.start(rollout_id, "--resume", rollout_id), chance)
    last = killed.start(rollout_id, "--resume", rollout_id)
    out, err = await asyncio.to_thread(last.communicate)
    if "the log has no rollout" in err:  # it was killed before its first record
        last = killed.start(rollout_id, "--id", rollout_id)
        out, err = await asyncio.to_thread(last.communicate)
    assert last.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["rollout_id"] == rollout_id
    await killed.no_strays()
    assert list((killed.folder / "state" / "sandboxes").iterdir()) == []
    check(await killed.slices(rollout_id))
    return moment


def check(slices: list[AgentEvents]) -> None:
    """Every branch ended exactly once, in its last attempt; attempts are not mixed, and nothing is missing in the last one."""
    attempts: dict[tuple[int, int], list[AgentEvents]] = defaultdict(list)
    newest: dict[int, int] = {}
    for one in slices:
        assert one.attempt >= newest.get(one.branch_index, 0), "an older attempt wrote after a newer one"
        newest[one.branch_index] = one.attempt
        attempts[one.branch_index, one.attempt].append(one)
        trace = f"{one.rollout_id}/b{one.branch_index}/a{one.attempt}"
        assert {event.trace_id for event in one.events} <= {trace}, "events of another attempt"
    assert sorted(newest) == list(range(BRANCHES))
    for branch, attempt in newest.items():
        ended = [
            number for (index, number), parts in attempts.items() if index == branch and any(p.ended for p in parts)
        ]
        assert ended == [attempt], f"branch {branch} ended in attempts {ended} of {attempt + 1}"
        kinds = [event.event for one in attempts[branch, attempt] for event in one.events]
        assert (kinds[0], kinds[-1]) == ("run_start", "final_answer")
        assert (kinds.count("tool_call"), kinds.count("tool_result"), kinds.count("error_recovery")) == (4, 4, 1)
