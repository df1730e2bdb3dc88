"""`braid rollouts` for people: the worker's view as a table, newest first."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from streams.looking.layout import cell
from streams.looking.text import line, listed, moment, number, several
from streams.looking.view import ViewRow

COLUMNS = (
    "rollout",
    "status",
    "branches",
    "events",
    "pass/fail/unknown",
    "settled",
    "closed",
    "best",
    "rows",
    "started (UTC)",
)
RIGHT = ("branches", "events")


def listing(rows: Sequence[ViewRow], limit: int, everything: Iterable[ViewRow]) -> RenderableType:
    """A table of rollouts, and how many there are of each status."""
    from streams.commands.tables import table

    shown = rows if limit <= 0 else rows[:limit]
    made = table("", *COLUMNS, right=RIGHT)
    for row in shown:
        made.add_row(*(cell(text) for text in columns(row)))
    left = len(rows) - len(shown)
    rest = [Text(f"... and {left:,} more (--limit 0 shows all)", style="dim")] if left else []
    counts = Counter(row.status for row in everything)
    total = several(sum(counts.values()), "rollout")
    summary = f"{total}: {listed([f'{count:,} {line(status)}' for status, count in sorted(counts.items())])}"
    return Group(made, *rest, Text(), Text(summary))


def columns(row: ViewRow) -> tuple[str, ...]:
    """The cells of a rollout."""
    best = row.best
    return (
        line(row.rollout_id, 60),
        line(row.status, 20),
        branches(row),
        f"{row.events:,}" + _plus(row),
        outcomes(row),
        line(row.settled or "-", 20),
        line(row.closed or ("-" if row.why is None else row.why), 40),
        "-" if best is None else f"{best.branch} ({number(best.total)})",
        training_rows(row),
        moment(row.started_at),
    )


def branches(row: ViewRow) -> str:
    """How many branches of how many: `3/4`; a plus where there may be more by now."""
    return f"{row.branches}{_plus(row)}" + ("" if row.expected is None else f"/{row.expected}")


def outcomes(row: ViewRow) -> str:
    """How branches came out: `2/1/1`, and those of which nothing is required."""
    if not row.outcomes:
        return "-"
    known = "/".join(str(row.outcomes.get(status, 0)) for status in ("pass", "fail", "unknown"))
    free = row.outcomes.get("not_required", 0)
    return known + (f" +{free} not required" if free else "")


def training_rows(row: ViewRow) -> str:
    """Training rows by kind, and how many were left out."""
    if not row.rows:
        return "-"
    kept = [f"{count} {line(kind, 20)}" for kind, count in sorted(row.rows.items()) if kind != "rejected"]
    left = row.rows.get("rejected", 0)
    return ", ".join([*(kept or ["none"]), *([f"{left} left out"] if left else [])])


def nothing_yet(place: str, facts: int) -> str:
    """What to say when the view is empty."""
    if facts:
        return (
            f"{place}: {several(facts, 'fact')} in the log, and no worker has read them yet; start one: `braid worker`"
        )
    return f"{place}: nothing yet; write facts with `braid ingest FILE` or the gateway, and start `braid worker`"


def _plus(row: ViewRow) -> str:
    return "" if row.is_final else "+"
