"""benchmarks/imports: `braid import` on large files: memory at 20 MB and at 2 GB, and speed beside plain parsing.

    python -m benchmarks.imports [--gigabytes N] [--format tau-bench|otel|...]

The files are made from the conformance samples (../shared/conformance), with other ids in each copy, in a temporary directory that is
removed at the end; the large one needs twice as much room again for the spool and the lines. `otel-shuffled` has its spans in an order
that has nothing to do with their traces. Processor seconds of `orjson.loads` of the same file, in a process of its own (a peak that is
measured includes that of the process which started it), stand beside those of the import; at 20 MB half a second of the import is the
start of Python.
"""

import argparse
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.alternation import measure

HERE = Path(__file__).parents[1]
SAMPLES = HERE.parent / "shared" / "conformance" / "imports"
SMALL = 20 * 2**20
MIDDLE = 200 * 2**20
MORE_MB = 30
GOAL = 0.20

_OTEL = rb'(?<="traceId": ")\w{8}|(?<="stringValue": "otel-)(?=gen_ai"|openinference")'
"""The names of traces and rollouts in the samples of OTLP."""


def tau_bench() -> Iterator[bytes]:
    """Runs of tau-bench for ever, as the pieces of one array."""
    runs = orjson.loads(next((SAMPLES / "tau-bench").glob("*.json")).read_bytes())
    copy = 0
    while True:
        for run in runs:
            yield orjson.dumps(run | {"task_id": run["task_id"] + 1000 * copy})
        copy += 1


def messages() -> Iterator[bytes]:
    """Chat messages for ever, a line for each conversation."""
    for number, run in enumerate(tau_bench()):
        yield orjson.dumps({"id": f"chat-{number}", "messages": orjson.loads(run)["traj"]})


def otel() -> Iterator[bytes]:
    """Export requests of OTLP for ever, a line each, with other traces and rollouts in each copy."""
    return _renamed(_lines("otel", "gen_ai", "spans.otlp.jsonl"), _OTEL)


def openinference() -> Iterator[bytes]:
    """The same in the other dialect."""
    return _renamed(_lines("otel", "openinference", "spans.otlp.jsonl"), _OTEL)


def otel_shuffled() -> Iterator[bytes]:
    """Spans of OTLP for ever, one in a request, those of 10,000 requests in any order."""
    spans, rng = _single_spans(otel()), random.Random(1)
    while True:
        some = [next(spans) for _ in range(30_000)]
        rng.shuffle(some)
        yield from some


def _single_spans(requests: Iterable[bytes]) -> Iterator[bytes]:
    for request in requests:
        for entry in orjson.loads(request)["resourceSpans"]:
            for scoped in entry["scopeSpans"]:
                for span in scoped["spans"]:
                    yield orjson.dumps({"resourceSpans": [entry | {"scopeSpans": [scoped | {"spans": [span]}]}]})


def langsmith() -> Iterator[bytes]:
    """Runs of LangSmith for ever, with other traces in each copy."""
    lines = _lines("langsmith", "runs.jsonl")
    traces = {orjson.loads(line)["trace_id"].encode() for line in lines}
    return _renamed(lines, b"|".join(rb"%b(?=%b)" % (trace[:8], re.escape(trace[8:])) for trace in sorted(traces)))


def oai_agents() -> Iterator[bytes]:
    """Traces of the OpenAI Agents SDK for ever, with other ids in each copy."""
    return _renamed(_lines("oai-agents", "traces.jsonl"), rb"(?<=trace_)\w{8}")


def adk_events() -> Iterator[bytes]:
    """Events of ADK for ever, a line each, with the session that they belong to."""
    sessions = [orjson.loads(line) for line in _lines("adk", "sessions.jsonl")]
    copy = 0
    while True:
        for session in sessions:
            for event in session["events"]:
                yield orjson.dumps(event | {"session_id": f"{session['id']}-{copy}"})
        copy += 1


def a2a_updates() -> Iterator[bytes]:
    """Updates of tasks for ever, a line each, with other tasks in each copy."""
    return _renamed(_lines("a2a-task", "stream.jsonl"), b"423a2569")


def _lines(*names: str) -> list[bytes]:
    return SAMPLES.joinpath(*names).read_bytes().splitlines()


def _renamed(lines: list[bytes], name: bytes) -> Iterator[bytes]:
    """The lines for ever; in each copy another number stands in place of these names."""
    pattern, copy = re.compile(name), 0
    while True:
        mark = b"%08x" % copy
        for line in lines:
            yield pattern.sub(mark, line)
        copy += 1


def write(path: Path, pieces: Iterator[bytes], size: int, *, array: bool) -> None:
    """Write pieces until the file is that large."""
    with path.open("wb") as out:
        written = out.write(b"[") if array else 0
        first = True
        while written < size:
            piece = next(pieces)
            written += out.write((b",\n" if array and not first else b"") + piece + (b"" if array else b"\n"))
            first = False
        if array:
            out.write(b"]")


def parse(path: Path, *, array: bool) -> float:
    """Processor seconds of plain parsing."""
    if array:
        raw = path.read_bytes()
        began = time.process_time()
        orjson.loads(raw)
        return time.process_time() - began
    took = 0.0
    with path.open("rb") as lines:
        while some := lines.readlines(SMALL):
            began = time.process_time()
            for line in some:
                orjson.loads(line)
            took += time.process_time() - began
    return took


def _apart(path: Path, *, array: bool) -> float:
    """`parse` in another process: this one stays small."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(parse, path, array=array).result()


class Kind(NamedTuple):
    """A kind of file."""

    format: str
    pieces: Callable[[], Iterator[bytes]]
    array: bool = False


KINDS = {
    "tau-bench": Kind("tau-bench", tau_bench, array=True),
    "otel": Kind("otel", otel),
    "otel-shuffled": Kind("otel", otel_shuffled),
    "openinference": Kind("otel", openinference),
    "langsmith": Kind("langsmith", langsmith),
    "oai-agents": Kind("oai-agents", oai_agents),
    "messages": Kind("messages", messages),
    "adk-events": Kind("adk", adk_events),
    "a2a-updates": Kind("a2a-task", a2a_updates),
}


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    asked.add_argument("--gigabytes", type=float, default=2.0)
    asked.add_argument("--format", choices=KINDS, action="append", help="may be given several times; default: all")
    options = asked.parse_args()
    for name in options.format or KINDS:
        with tempfile.TemporaryDirectory() as place:
            measure_kind(name, Path(place), int(options.gigabytes * 2**30))


def measure_kind(name: str, folder: Path, large: int) -> None:
    """Measure one kind of file at each size."""
    first = 0
    for size in sorted({SMALL, min(MIDDLE, large), large}):
        kind = KINDS[name]
        path = folder / ("traces.json" if kind.array else "traces.jsonl")
        write(path, kind.pieces(), size, array=kind.array)
        plain = _apart(path, array=kind.array) if size <= MIDDLE or not kind.array else None
        braid = HERE / ".venv" / "bin" / "braid"
        done = measure([braid, "import", kind.format, path, "--out", folder / "lines.ndjson"], cwd=folder)
        first = first or done.rss
        beside = "" if plain is None else (
            f", orjson alone {plain:.2f} s: {plain / done.cpu:.1%} of its speed (goal {GOAL:.0%})"
        )  # fmt: skip
        print(f"{name}: {size / 2**20:,.0f} MB: import {done.cpu:.2f} s of processor time{beside}; "
              f"peak {done.rss / 2**20:.0f} MB: {(done.rss - first) / 2**20:+.0f} MB (at most +{MORE_MB})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
