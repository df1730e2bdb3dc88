"""benchmarks/imports: `braid import` on large files: memory at 20 MB and at 2 GB, and speed beside plain parsing.

    python -m benchmarks.imports [--gigabytes N] [--format tau-bench|otel]

The files are made from the conformance samples (../shared/conformance), with other ids in each copy, in a temporary directory that is
removed at the end; the large one needs as much room again for the spool. Processor seconds of `orjson.loads` of the same 20 MB, in
this process, stand beside those of the import.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from benchmarks.alternation import measure

HERE = Path(__file__).parents[1]
SAMPLES = HERE.parent / "shared" / "conformance" / "imports"
SMALL = 20 * 2**20
MORE_MB = 30
GOAL = 0.20


def tau_bench() -> Iterator[bytes]:
    """Runs of tau-bench for ever, as the pieces of one array."""
    runs = orjson.loads(next((SAMPLES / "tau-bench").glob("*.json")).read_bytes())
    copy = 0
    while True:
        for run in runs:
            yield orjson.dumps(run | {"task_id": run["task_id"] + 1000 * copy})
        copy += 1


def otel() -> Iterator[bytes]:
    """Export requests of OTLP for ever, a line each, with other trace ids in each copy."""
    lines = (SAMPLES / "otel" / "gen_ai" / "spans.otlp.jsonl").read_bytes().splitlines()
    copy = 0
    while True:
        for line in lines:
            yield _renamed(line, copy)
        copy += 1


def _renamed(line: bytes, copy: int) -> bytes:
    request = orjson.loads(line)
    mark = f"{copy:08x}"
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span["traceId"] = mark + span["traceId"][8:]
                for attribute in span.get("attributes", ()):
                    if attribute["key"] == "braid.rollout_id":
                        attribute["value"] = {"stringValue": f"{attribute['value']['stringValue']}-{copy}"}
    return orjson.dumps(request)


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
    raw = path.read_bytes()
    began = time.process_time()
    if array:
        orjson.loads(raw)
    else:
        for line in raw.splitlines():
            orjson.loads(line)
    return time.process_time() - began


FILES: dict[str, tuple[Callable[[], Iterator[bytes]], bool]] = {"tau-bench": (tau_bench, True), "otel": (otel, False)}


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    asked.add_argument("--gigabytes", type=float, default=2.0)
    asked.add_argument("--format", choices=FILES, action="append")
    options = asked.parse_args()
    for name in options.format or FILES:
        with tempfile.TemporaryDirectory() as place:
            measure_format(name, Path(place), int(options.gigabytes * 2**30))


def measure_format(name: str, folder: Path, large: int) -> None:
    """Measure one format."""
    pieces, array = FILES[name]
    suffix = ".json" if array else ".jsonl"
    small, big = folder / f"small{suffix}", folder / f"big{suffix}"
    write(small, pieces(), SMALL, array=array)
    plain = parse(small, array=array)
    braid = HERE / ".venv" / "bin" / "braid"
    at_small = measure([braid, "import", name, small, "--out", folder / "small.ndjson"], cwd=folder)
    print(f"{name}: {SMALL / 2**20:.0f} MB: import {at_small.cpu:.2f} s, orjson alone {plain:.2f} s: "
          f"{plain / at_small.cpu:.0%} of its speed (goal {GOAL:.0%}), peak {at_small.rss / 2**20:.0f} MB")  # fmt: skip
    write(big, pieces(), large, array=array)
    at_large = measure([braid, "import", name, big, "--out", folder / "big.ndjson"], cwd=folder)
    more = (at_large.rss - at_small.rss) / 2**20
    print(f"{name}: {large / 2**20:,.0f} MB: {at_large.wall:.0f} s, peak {at_large.rss / 2**20:.0f} MB: "
          f"{more:+.0f} MB (at most +{MORE_MB})")  # fmt: skip


if __name__ == "__main__":
    main()
