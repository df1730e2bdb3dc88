"""benchmarks/versus: processor time of a replay, here and in another checkout, in turns.

    python -m benchmarks.versus OTHER_CHECKOUT [--branches N] [--runs N]

Each checkout runs with its own .venv, installed by its own `make setup`. The log is that of benchmarks/replay, written by the other
checkout: newer code reads older logs. Processor time of starting the command is measured on a small log and subtracted.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.alternation import RUNS, Usage, alternate, measure
from benchmarks.replay import PLAIN

HERE = Path(__file__).parents[1]
SMALL = 400
MADE = (("rows", (*PLAIN, "--dry-run")), ("rows, redaction, signed evidence", ("--dry-run",)))


def replayed(checkout: Path, log: Path, words: tuple[str, ...]) -> Usage:
    """Replay a log with the command of a checkout, in one process."""
    braid = checkout / ".venv" / "bin" / "braid"
    return measure([braid, "replay", "--json", "--from-dir", log, *words, "--processes", "1"], cwd=checkout)


def generated(checkout: Path, log: Path, branches: int) -> None:
    """Write a log with the code of a checkout."""
    script = "import sys; from pathlib import Path; from benchmarks.replay import generate; generate(Path(sys.argv[1]), int(sys.argv[2]))"
    measure([checkout / ".venv" / "bin" / "python", "-c", script, log, str(branches)], cwd=checkout)


def main() -> None:
    """Run everything and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("other", type=Path)
    arguments.add_argument("--branches", type=int, default=20_000)
    arguments.add_argument("--runs", type=int, default=RUNS)
    given = arguments.parse_args()
    sides = {"there": given.other.resolve(), "here": HERE}
    with tempfile.TemporaryDirectory() as name:
        logs = {branches: Path(name) / str(branches) for branches in (SMALL, given.branches)}
        for branches, log in logs.items():
            generated(sides["there"], log, branches)
        print(f"{'CPU microseconds a branch, medians':<40}{'there':>10}{'here':>10}{'ratio':>8}{'MB':>8}{'MB':>8}")
        for what, words in MADE:
            small, large = (
                alternate({side: partial(replayed, at, log, words) for side, at in sides.items()}, given.runs)
                for log in logs.values()
            )
            spent = [(large[side].cpu - small[side].cpu) / (given.branches - SMALL) * 1e6 for side in sides]
            memory = "".join(f"{large[side].rss / 1e6:>8.0f}" for side in sides)
            print(f"{what:<40}{spent[0]:>10.1f}{spent[1]:>10.1f}{spent[1] / spent[0]:>8.3f}{memory}", flush=True)


if __name__ == "__main__":
    main()
