"""`braid rollouts` for people: the worker's view as a table, newest first."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from streams.log.terminal_text import WHOLE, line, listed, moment, number, several
from streams.log.view_rows import ViewRow
from streams.views.layout import cell

COLUMNS = (
    "rollout", "status", "branches", "events", "pass/fail/unknown", "settled, closed", "best", "sft/dpo/ppo", "left out",
    "started (UTC)",
)  # fmt: skip
RIGHT = ("branches", "events", "left out")
SPARE = ("started (UTC)", "settled, closed", "events", "left out", "branches")
"""Columns that a narrow terminal does without, the least important first."""


def listing(rows: Sequence[ViewRow], limit: int, everything: Iterable[ViewRow]) -> RenderableType:
    """A table of rollouts, and how many there are of each status."""
    from streams.views.tables import table

    shown = rows if limit <= 0 else rows[:limit]
    made = table("", *COLUMNS, right=RIGHT, whole=COLUMNS, spare=SPARE)
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
        line(row.rollout_id, WHOLE),
        line(row.status),
        branches(row),
        f"{row.events:,}" + _plus(row),
        outcomes(row),
        causes(row),
        "-" if best is None else f"{best.branch} ({number(best.total)})",
        training_rows(row),
        str(row.rows.get("rejected", 0)) if row.rows else "-",
        moment(row.started_at),
    )


def branches(row: ViewRow) -> str:
    """How many branches of how many: `3/4`; a plus if there may be more by now."""
    return f"{row.branches}{_plus(row)}" + ("" if row.expected is None else f"/{row.expected}")


def outcomes(row: ViewRow) -> str:
    """The outcomes of branches: `2/1/1`, and the number of those without required verdicts."""
    if not row.outcomes:
        return "-"
    free = row.outcomes.get("not_required", 0)
    if free == sum(row.outcomes.values()):
        return f"{free} not required"
    known = "/".join(str(row.outcomes.get(status, 0)) for status in ("pass", "fail", "unknown"))
    return known + (f" +{free} not required" if free else "")


def causes(row: ViewRow) -> str:
    """Why it settled and why it closed; for a broken one, the reason."""
    if row.why is not None:
        return line(row.why, WHOLE)
    return ", ".join(line(cause) for cause in (row.settled, row.closed) if cause) or "-"


def training_rows(row: ViewRow) -> str:
    """Training rows by kind: `2/4/4`."""
    return "/".join(str(row.rows.get(kind, 0)) for kind in ("sft", "dpo", "ppo")) if row.rows else "-"


def nothing_yet(place: str, facts: int) -> str:
    """The sentence for an empty view."""
    if facts:
        return (
            f"{place}: {several(facts, 'fact')} in the log, and no worker has read them yet; start one: `braid worker`"
        )
    return f"{place}: nothing yet; write facts with `braid ingest FILE` or the gateway, and start `braid worker`"


def _plus(row: ViewRow) -> str:
    return "" if row.is_final else "+"
