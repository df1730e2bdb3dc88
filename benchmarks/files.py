"""benchmarks/files: `braid run` on a file of rollout-wire branches, here and in another checkout, in turns.

    python -m benchmarks.files OTHER_CHECKOUT [--branches N] [--runs N] [--full]

Each checkout runs with its own .venv, installed by its own `make setup`, on all processors. Medians of wall seconds and processor
seconds, and the largest process. `--full` adds one run here on ten times as many branches: memory has to stay the same.
A checkout without `--no-evidence` makes evidence in both rows; its redaction is off in the second, by its configuration.
"""

import argparse
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import orjson

from benchmarks.alternation import Usage, alternate, measure
from benchmarks.replay import BRANCHES, ID, PLAIN, branch_events
from schemas.events import AgentEvent

HERE = Path(__file__).parents[1]
BARS = {"everything": 2.8, "rows": 5.5}
MOST_MB = 250
NOT_REDACTED = "BRAID_EMISSION__REDACT"


def wire_line(number: int, branch: int) -> bytes:
    """One branch: eight events with its answer, about 5 KB, and the result of its build."""
    *events, answer = branch_events(number, branch)
    status, code = (("success", 0), ("failure", 1))[branch % 2]
    record = {
        "rollout_id": ID.format(number), "branch_index": branch, "session_id": f"s-{number}-{branch}", "temperature": 0.7,
        "model": "m", "task": f"Mend module {number}", "tool_call_sequence": [_entry(event) for event in events],
        "final_answer": orjson.loads(answer.data)["answer"],
        "build_result": {"status": status, "exit_code": code, "stage": "test", "stdout": f"{branch} of them ran\n"},
    }  # fmt: skip
    return orjson.dumps(record) + b"\n"


def _entry(event: AgentEvent) -> dict[str, object]:
    return {
        "traceId": event.trace_id, "channel": event.channel, "event": event.event, "data": orjson.loads(event.data),
        "timestampMs": event.timestamp_ms,
    }  # fmt: skip


def generate(path: Path, branches: int) -> None:
    """Write the file, rollout by rollout."""
    with path.open("wb") as out:
        for number in range(branches // BRANCHES):
            out.writelines(wire_line(number, branch) for branch in range(BRANCHES))


def ran(checkout: Path, lines: Path, folder: Path, words: tuple[str, ...]) -> Usage:
    """Run the command of a checkout on a file, to a fresh directory."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        braid = checkout / ".venv" / "bin" / "braid"
        return measure([braid, "run", lines, "--out", Path(out, "out"), "--json", *words], cwd=checkout)


def knows(checkout: Path, word: str) -> bool:
    """Whether `braid run` of a checkout has an option."""
    told = subprocess.run([checkout / ".venv/bin/braid", "run", "--help"], capture_output=True, check=True, text=True)
    return word in told.stdout


def compare(what: str, sides: dict[str, partial[Usage]], runs: int) -> None:
    """Print one row: seconds of both sides, and how much faster this one is."""
    found = alternate(sides, runs)
    there, here = found["there"], found["here"]
    seconds = "".join(f"{each.wall:>9.2f}{each.cpu:>9.2f}{each.rss / 1e6:>7.0f}" for each in (there, here))
    ratio = there.wall / here.wall
    print(f"{what:<12}{seconds}{ratio:>9.2f} x{there.cpu / here.cpu:>8.2f} x   bar {BARS[what]} x", flush=True)


def main() -> None:
    """Run everything and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("other", type=Path)
    arguments.add_argument("--branches", type=int, default=40_000)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--full", action="store_true")
    given = arguments.parse_args()
    other = given.other.resolve()
    print(f"{given.branches:,} branches, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before")
    print(f"{'':<12}{'there: wall':>9}{'CPU':>7}{'MB':>7}{'here: wall':>11}{'CPU':>7}{'MB':>7}{'wall':>9}{'CPU':>10}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(lines := folder / "lines.jsonl", given.branches)
        sides = {"there": partial(ran, other, lines, folder, ()), "here": partial(ran, HERE, lines, folder, ())}
        compare("everything", sides, given.runs)
        has_words = knows(other, "--no-evidence")
        sides = {
            "there": partial(ran, other, lines, folder, PLAIN if has_words else ()),
            "here": partial(ran, HERE, lines, folder, PLAIN),
        }
        os.environ[NOT_REDACTED] = "false"
        compare("rows", sides, given.runs)
        if not has_words:
            print("rows: there with evidence, which it cannot leave out, and without redaction")
        del os.environ[NOT_REDACTED]
        if given.full:
            generate(lines, 10 * given.branches)
            used = ran(HERE, lines, folder, ())
            print(
                f"{10 * given.branches:,} branches here: {used.wall:.1f} s, largest process {used.rss / 1e6:.0f} MB (bar {MOST_MB})"
            )
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
