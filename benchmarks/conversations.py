"""Bytes and memory of long exact conversations: python -m benchmarks.conversations [--turns N] [--branches N] [--context BYTES] [--live]

Branches whose context begins with 40 KB and grows by every turn, written as `message` and `model_call` lines. A call says its context
as a difference to the call before, so the log must grow with the turns; the requests themselves, side by side, grow with their square.
`--live` adds the live worker on a Kafka of its own.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.live import environment, fresh_broker, run_worker

WORDS = [
    f"{head}{tail}"
    for head in ("re", "con", "de", "pro", "un", "sub")
    for tail in ("act", "form", "pack", "tend", "port", "view")
]
USER, ASSISTANT, TOOL = 120, 300, 400
"""Characters of the messages of a turn: a question, an answer with a call, an output."""
STEPS = 5
"""Sizes of the conversation that are measured, up to the largest."""


class Written(NamedTuple):
    """One conversation of some turns."""

    lines: int
    """Bytes of its lines."""
    requests: int
    """Bytes of all requests as they were sent, each with its whole context."""


class Peak(NamedTuple):
    """One run of a command."""

    seconds: float
    megabytes: float
    """Most memory that it held."""


def text_of(dice: random.Random, length: int) -> str:
    """Words of about this many characters."""
    return " ".join(dice.choices(WORDS, k=length // 8))


class Branch:
    """Writes one branch, turn by turn, and counts what its requests would have cost."""

    def __init__(self, rollout: str, index: int, context: int) -> None:
        self._place = {"type": "event", "rollout_id": rollout, "branch_index": index}
        self._dice = random.Random(f"{rollout}/{index}")
        self._opening = context
        self._messages = 0
        self._kept = 0
        self._held = 0
        self._call: str | None = None
        self.requests = 0

    def events(self, turns: int) -> Iterator[dict[str, Any]]:
        """The lines of the branch: in every turn a question, a call of a tool, its output and the answer."""
        system = self._message(role="system", content=text_of(self._dice, self._opening))
        yield system
        add = [system]
        for turn in range(turns):
            question = self._message(role="user", content=text_of(self._dice, USER))
            call = {"id": f"t{turn}", "name": "run", "arguments": {"command": text_of(self._dice, 40)}}
            asks = self._message(role="assistant", content=text_of(self._dice, ASSISTANT), tool_calls=[call])
            output = self._message(role="tool", tool_call_id=f"t{turn}", content=text_of(self._dice, TOOL))
            answer = self._message(role="assistant", content=text_of(self._dice, ASSISTANT))
            yield from (question, asks, self._asked([*add, question], asks, turn, "a"))
            yield from (output, answer, self._asked([output], answer, turn, "b"))
            add = []

    def _line(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        return {**self._place, "event": {"event": kind, "data": data}}

    def _message(self, **data: Any) -> dict[str, Any]:
        self._messages += 1
        return self._line("message", {"id": f"x{self._messages}", **data})

    def _asked(self, add: list[dict[str, Any]], response: dict[str, Any], turn: int, name: str) -> dict[str, Any]:
        new = [line["event"]["data"] for line in add]
        context = {"after": self._call, "keep": self._kept, "add": [data["id"] for data in new]}
        self._held += sum(len(orjson.dumps(data)) for data in new)
        self.requests += self._held
        answer = response["event"]["data"]
        self._held += len(orjson.dumps(answer))
        self._kept += len(new) + 1
        self._call = f"c{turn}{name}"
        usage = {"input": self._held // 4, "output": 80}
        return self._line(
            "model_call",
            {"call_id": self._call, "context": context, "response": answer["id"], "model": "m", "usage": usage},
        )


def write(path: Path, turns: int, branches: int, context: int) -> Written:
    """Write the lines of one rollout: the first branch passes, the others fail."""
    requests = 0
    with path.open("wb") as file:
        opened = {"type": "rollout", "rollout_id": "long", "task": "talk", "branches": branches, "required": ["build"]}
        file.write(orjson.dumps(opened) + b"\n")
        for index in range(branches):
            branch = Branch("long", index, context)
            file.writelines(orjson.dumps(line) + b"\n" for line in branch.events(turns))
            requests += branch.requests
            place = {"rollout_id": "long", "branch_index": index}
            build = {"status": "failure", "exit_code": 1} if index else {"status": "success", "exit_code": 0}
            file.write(orjson.dumps({"type": "end", **place}) + b"\n")
            file.write(orjson.dumps({"type": "build", **place, **build}) + b"\n")
    return Written(path.stat().st_size, requests)


def peak(*words: object) -> Peak:
    """Run `braid` with these words. Raises RuntimeError when it fails."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "streams.cli", *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"braid {' '.join(map(str, words))} ended with {process.returncode}")
    return Peak(time.perf_counter() - began, usage.ru_maxrss / 1024)


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(folder: Path, turns: int, branches: int, context: int) -> None:
    """Print one row."""
    lines, out, anew = folder / f"{turns}.ndjson", folder / f"{turns}", folder / f"{turns}-replay"
    written = write(lines, turns, branches, context)
    run = peak("run", lines, "--out", out)
    replay = peak("replay", "--from-dir", out, "--out", anew)
    log = size_of(out / "log" / "rollouts.agent-events.v1")
    rows = sum((out / f"{name}.jsonl").stat().st_size for name in ("sft", "dpo", "ppo"))
    millions = [f"{size / 1e6:>12.2f}" for size in (written.lines, log, written.requests, rows)]
    print(
        f"{turns:>6}{''.join(millions)}{run.seconds:>9.1f}{run.megabytes:>9.0f}{replay.seconds:>11.1f}{replay.megabytes:>9.0f}",
        flush=True,
    )


def live(folder: Path, turns: int, branches: int, context: int) -> float:
    """Return the largest resident set, in MB, of a live worker that folds the longest conversations."""
    write(lines := folder / "live.ndjson", turns, branches, context)
    with fresh_broker(folder, 4) as settings:
        for words in (("up",), ("ingest", str(lines))):
            command = [sys.executable, "-m", "streams.cli", *words]
            subprocess.run(command, env=environment(settings), check=True, stdout=subprocess.DEVNULL)
        _, memory = run_worker(settings, 1, folder)
    return max(memory)


def main() -> None:
    """Measure conversations of several lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--branches", type=int, default=4)
    parser.add_argument("--context", type=int, default=40_000)
    parser.add_argument("--live", action="store_true")
    flags = parser.parse_args()
    print(
        f"{flags.branches} branches, contexts from {flags.context:,} bytes, two calls a turn; sizes and memory in MB\n"
    )
    print(
        f"{'turns':>6}{'lines':>12}{'log':>12}{'requests':>12}{'rows':>12}{'run, s':>9}{'peak':>9}{'replay, s':>11}{'peak':>9}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, STEPS + 1):
            measure(Path(folder), flags.turns * step // STEPS, flags.branches, flags.context)
        if flags.live:
            print(
                f"live worker, {flags.turns} turns: peak {live(Path(folder), flags.turns, flags.branches, flags.context):.0f} MB"
            )


if __name__ == "__main__":
    main()
