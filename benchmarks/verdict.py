"""benchmarks/verdict: time of a build verdict, here and in another checkout, in turns.

    python -m benchmarks.verdict OTHER_CHECKOUT [--turns N] [--verdicts N]

The reference solution of each sample task is tested by each checkout's own tests and sandboxes, one verdict after the other from a
pool of one, so that emptying a sandbox counts. A checkout without a .venv is run by this one's Python. Wall time: the median over
all verdicts, and the best one, which other work on the machine disturbs least.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
SAMPLES = ("csv-table", "name-migration", "notes-api", "price-page")
GOAL = 1.3

SCRIPT = """
import asyncio, json, sys, tempfile, time
from pathlib import Path
from agents.fork.build_verdict import build_verdict
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.pool import KernelPool
from agents.fork.subject import Subject
from agents.fork.task_adapter import SAMPLES, find_task, load_task, overlays

async def main(name, verdicts):
    task = load_task(find_task(name))
    files = {**task.start, **overlays(SAMPLES / name)["solution"]}
    with tempfile.TemporaryDirectory() as folder:
        local = await LocalSandboxes.open(Path(folder) / "sandboxes")
        pool, times = KernelPool(local.create, 1), []
        for _ in range(verdicts + 1):
            began = time.perf_counter()
            async with pool.lease() as sandbox:
                verdict = await build_verdict(task, files, sandbox, Subject("r", 0, 0, "benchmark", "files"))
            assert verdict.status == "success", verdict
            times.append(time.perf_counter() - began)
        await pool.close()
        await local.close()
    print(json.dumps(times[1:]))  # the first one makes the sandbox

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def times_of(checkout: Path, name: str, verdicts: int) -> list[float]:
    """Seconds of each verdict, by the code of a checkout."""
    own = checkout / ".venv" / "bin" / "python"
    command = [own if own.exists() else sys.executable, "-B", "-c", SCRIPT, name, str(verdicts)]
    env = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return [float(each) for each in json.loads(done.stdout)]


def main() -> None:
    """Run everything and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("other", type=Path)
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--verdicts", type=int, default=4)
    given = arguments.parse_args()
    sides = {"there": given.other.resolve(), "here": HERE}
    print(f"{'milliseconds a verdict':<24}{'there':>8}{'here':>8}{'ratio':>8}{'best':>8}{'best':>8}{'ratio':>8}")
    for name in SAMPLES:
        found: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(given.turns):
            for side in sides if turn % 2 else reversed(sides):
                found[side] += times_of(sides[side], name, given.verdicts)
        cells = ""
        for middle in (median, min):
            there, here = (middle(each) * 1000 for each in found.values())
            cells += f"{there:>8.0f}{here:>8.0f}{here / there:>8.2f}"
        print(f"{name:<24}{cells}", flush=True)
    print(f"goal: {GOAL} or less")


if __name__ == "__main__":
    main()
