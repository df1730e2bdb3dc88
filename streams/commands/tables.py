"""Tables for people: one look for all commands."""

import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from streams.counts import Counts

PIPE_WIDTH = 160
"""Columns where no terminal says how many there are."""


def console() -> Console:
    """Standard output, with colours on a terminal only."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def show(*things: RenderableType) -> None:
    """Print."""
    out = console()
    for thing in things:
        out.print(thing)


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table; columns in `right` are aligned to the right."""
    made = Table(
        title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def counts_table(counts: Counts) -> Table:
    """What a run did."""
    made = table("", "what", "count", right=("count",))
    plain: dict[str, Any] = counts.plain()
    labels = {
        "rollouts": "rollouts", "branches": "branches", "events": "events", "passes": "passing branches", "fails": "failing branches",
        "unknown": "unknown branches", "not_required": "branches with nothing required", "sft": "SFT rows", "dpo": "DPO rows",
        "ppo": "PPO rows", "aep": "evidence records", "dead_letters": "dead letters", "bad_lines": "bad lines",
    }  # fmt: skip
    for name, label in labels.items():
        made.add_row(label, f"{plain[name]:,}")
    for reason, count in plain["rejected"].items():
        made.add_row(f"left out: {reason}", f"{count:,}")
    made.add_row("seconds", f"{plain['seconds']:.2f}")
    return made
