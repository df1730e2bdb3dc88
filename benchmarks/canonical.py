"""benchmarks/canonical: the walk that tells whether orjson writes a value as canonical JSON, in C beside compiled Python.

    python -m benchmarks.canonical

Values are the data of an agent's events, and a record of evidence. Medians of seven turns.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from agents.evidence.canonical import in_python, written_alike
from benchmarks.replay import branch_events
from schemas.jsontext import parse_object

REPEATS = 20_000
TURNS = 7


def evidence() -> dict[str, Any]:
    """A value of the size of an evidence record: forty actions with digests."""
    action = {
        "action_id": "c0",
        "tool_name": "run",
        "state_changing": True,
        "arguments_digest": "a" * 64,
        "timestamp_ms": 1,
    }
    return {"schema_version": "aep/v0.3", "run_id": "r/b0/a0", "actions": [action] * 40}


def spent(walk: Callable[[Any], bool], values: list[Any]) -> float:
    """Microseconds a value."""
    began = perf_counter()
    for _ in range(REPEATS // len(values)):
        for value in values:
            walk(value)
    return (perf_counter() - began) / (REPEATS // len(values) * len(values)) * 1e6


def main() -> None:
    """Print the table."""
    found = {"data of an event": [parse_object(event.data) for event in branch_events(1, 0)], "evidence": [evidence()]}
    print(f"{'microseconds a value':<24}{'Python':>10}{'C':>10}{'ratio':>8}")
    for what, values in found.items():
        turns = [(spent(in_python, values), spent(written_alike, values)) for _ in range(TURNS)]
        python, c = (median(each) for each in zip(*turns, strict=True))
        print(f"{what:<24}{python:>10.2f}{c:>10.2f}{python / c:>8.1f}")


if __name__ == "__main__":
    main()
