"""Cost of refusing repeated keys, as a share of parsing and of a whole `braid run`: python -m benchmarks.repeated_keys

Lines as agents write them: single tokens, calls, and tool results of some kilobytes with code, JSON and time stamps in them.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from agents.importers.line_writer import lines_of
from benchmarks.load import BUSY, REAL, Shape, rollout_facts
from schemas.compiled import compiled
from schemas.jsontext import parse, parse_unique
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files

OUTPUT = "\n".join(
    f'12:{number:02}:07 INFO cache.py:{number} {{"key": "value {number}", "path": "a\\\\b"}} # see https://example.org/x?y=1'
    for number in range(40)
)
ROLLOUTS = 60


def lines(shape: Shape, *, with_outputs: bool) -> Iterator[bytes]:
    """The lines of some rollouts."""
    for number in range(ROLLOUTS):
        for fact in rollout_facts(f"r{number}", 64, shape):
            for line in lines_of(fact):
                if with_outputs and line.get("event", {}).get("event") == "tool_result":
                    line["event"]["data"]["output"] = OUTPUT
                yield orjson.dumps(line)


def best(work: Callable[[bytes], Any], texts: list[bytes]) -> float:
    """Seconds of the processor for all texts, the best of several times."""
    times = []
    for _ in range(7):
        began = time.process_time()
        for text in texts:
            work(text)
        times.append(time.process_time() - began)
    return min(times)


def measure(name: str, texts: list[bytes]) -> None:
    """Print one row."""
    plain, unique = best(parse, texts), best(parse_unique, texts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lines.ndjson")
        path.write_bytes(b"\n".join(texts))
        began = time.process_time()
        run_files([path], Path(folder, "out"), Settings(), None)
        run = time.process_time() - began
    size = sum(map(len, texts))
    print(
        f"{name}: {len(texts):,} lines of {size // len(texts):,} bytes; parse {size / plain / 1e6:,.0f} MB/s, without repeated keys "
        f"{size / unique / 1e6:,.0f} MB/s; {(unique - plain) / run:.1%} of braid run"
    )


def main() -> None:
    """Print the table."""
    print("compiled modules:", len(compiled().modules))
    measure("single tokens", list(lines(REAL, with_outputs=False)))
    measure("calls", list(lines(BUSY, with_outputs=False)))
    measure("calls with outputs of 4 KB", list(lines(BUSY, with_outputs=True)))


if __name__ == "__main__":
    main()
