"""How fast rollouts are exported, and in how much memory: the same at any length of the log.

    python benchmarks/export.py [--branches 2000 20000] [--full] [--formats trl-dpo rollout-wire verl-parquet]

A log of rollouts of eight branches, each with a few tool calls, is generated as `braid run` leaves it. Every export runs in
a process of its own; memory is the peak of what that process had resident, which includes about 100 MB of the libraries.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import orjson

from agents.formats import FORMATS
from streams.cluster.config import Settings
from streams.jobs.export.export import export
from streams.jobs.export.recipe import Recipe
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader

SIZES = (2_000, 20_000)
FULL = (10_000, 100_000)
GROUP = 8
CALLS = 4
OUTPUT_WORDS = 60
DEFAULT_FORMATS = ("trl-sft", "trl-dpo", "verl-parquet", "rollout-wire")
WORDS = ("the", "file", "test", "build", "path", "value", "error", "line", "fix", "return", "result", "check", "module")


def lines(branches: int) -> Iterator[dict[str, Any]]:
    """Rollouts of eight branches: half of them pass."""
    random = Random(7)
    for number in range(branches // GROUP):
        rollout = {"rollout_id": f"bench-{number:06}"}
        task = f"Task {number}: " + " ".join(random.choices(WORDS, k=30))
        yield {"type": "rollout", **rollout, "task": task, "branches": GROUP, "tools": ["shell", "write_file"]}
        for index in range(GROUP):
            where = {**rollout, "branch_index": index}
            events: list[tuple[str, str, dict[str, Any]]] = []
            for call in range(CALLS):
                name, output = random.choice(("shell", "write_file")), " ".join(random.choices(WORDS, k=OUTPUT_WORDS))
                args = {"command": f"make {call}"} if name == "shell" else {"path": f"{index}.py", "content": output}
                events.append(("tool", "tool_call", {"toolName": name, "args": args, "callId": f"c{call}"}))
                events.append(("tool", "tool_result", {"toolName": name, "callId": f"c{call}", "output": output}))
            events.append(("text", "final_answer", {"answer": " ".join(random.choices(WORDS, k=40))}))
            for seq, (channel, kind, data) in enumerate(events):
                yield {"type": "event", **where, "seq": seq, "event": {"channel": channel, "event": kind, "data": data}}
            status = {"status": "failure", "exit_code": 1} if index % 2 else {"status": "success", "exit_code": 0}
            yield {"type": "build", **where, **status}


def generate(folder: Path, branches: int) -> Path:
    """A log of so many branches."""
    source = folder / f"{branches}.ndjson"
    with source.open("wb") as out:
        for line in lines(branches):
            out.write(orjson.dumps(line) + b"\n")
    run_files([source], folder / f"run-{branches}", Settings(), None)
    source.unlink()
    return folder / f"run-{branches}"


def measure(run: Path, out: Path, name: str) -> None:
    """One export, in this process; prints what it took."""
    began = time.monotonic()
    counts = asyncio.run(export(FileReader(run), out, Recipe.of(FORMATS[name], None)))
    # Not ru_maxrss, which begins with what the process had that started this one.
    status = Path("/proc/self/status").read_text("utf-8")
    peak = int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) / 1024
    print(json.dumps({"rows": counts.rows, "bytes": counts.bytes, "seconds": time.monotonic() - began, "mb": peak}))


def main() -> None:
    """Generate, export, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--branches", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--full", action="store_true", help="10,000 and 100,000 branches")
    parser.add_argument("--formats", nargs="+", default=list(DEFAULT_FORMATS), choices=list(FORMATS))
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(Path(given.measure[0]), Path(given.measure[1]), given.measure[2])
        return
    print(
        f"{'format':16} {'branches':>9} {'rows':>8} {'MB out':>8} {'seconds':>8} {'rows/s':>8} {'branches/s':>11} {'peak MB':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="braid-export-") as folder:
        for branches in FULL if given.full else given.branches:
            run = generate(Path(folder), branches)
            for name in given.formats:
                words = [sys.executable, __file__, "--measure", str(run), f"{folder}/{name}-{branches}", name]
                found = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
                print(
                    f"{name:16} {branches:9,} {found['rows']:8,} {found['bytes'] / 1e6:8.1f} {found['seconds']:8.2f} "
                    f"{found['rows'] / found['seconds']:8,.0f} {branches / found['seconds']:11,.0f} {found['mb']:8.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
