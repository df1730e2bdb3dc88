"""The list of rollouts: their state, why they wait, and how busy the log is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streams.log.index_queries import Activity, IndexRow, Wanted
from streams.log.terminal_text import moment, number, several
from streams.views.web.links import Links
from streams.views.web.markup import NOTHING, Content, Markup, join, tag
from streams.views.web.page_frame import STATES, bead, link, pages, state, table, time

SIZE = 50
"""Rollouts on a page."""

NAMES = {"P": "pass", "F": "fail", "U": "unknown", "N": "not_required"}

STATUSES = ("open", "settled", "closing", "closed", "broken")

SPARK = (240, 34)
"""Size of a sparkline."""

WAITS = 4
"""Reasons why a rollout waits that are shown of each."""

MINUTES = 60
"""Of the sparklines."""


class Listing(NamedTuple):
    """Content of the list."""

    wanted: Wanted
    first: int
    total: int
    rows: Sequence[IndexRow]
    waits: Mapping[str, Sequence[str]]
    """By rollout, why it waits; only for the requested ones."""
    statuses: Mapping[str, int]
    activity: Activity | None
    share: float | None
    """The share of the log that the index has read; None if all of it."""


def list_page(listing: Listing, links: Links) -> Markup:
    """The content of the page."""
    shown = several(sum(listing.statuses.values()), "rollout")
    return join(
        tag("div", tag("h1", "Rollouts"), tag("p", shown, class_="note"), class_="title"),
        _building(listing.share),
        _sparks(listing.activity),
        _filters(listing, links),
        _rows(listing, links) if listing.rows else _nothing(listing),
        _meanings(listing),
        pages(listing.total, listing.first, SIZE, _neighbours(listing, links)),
    )


def _building(share: float | None) -> Markup:
    if share is None:
        return NOTHING
    return tag(
        "p",
        f"The index is being built from the log: {share:.0%} read. Rollouts appear as they are found.",
        class_="notice",
        role="status",
    )


def _nothing(listing: Listing) -> Markup:
    if listing.wanted.status or listing.wanted.text:
        return tag("p", "No rollout matches.", class_="empty")
    return tag(
        "p",
        "Nothing yet. ",
        tag("code", "braid demo"),
        " writes some; so do ",
        tag("code", "braid fork"),
        " and the gateway.",
        class_="empty",
    )


def _sparks(activity: Activity | None) -> Markup:
    """The rate of events and of closings, minute by minute, to the end of the log."""
    if activity is None:
        return NOTHING
    until = moment(activity.last * 60_000)[:16]
    series = (("event records", activity.slices), ("closings", activity.closings))
    return tag(
        "div",
        *(_spark(name, values) for name, values in series),
        tag("p", f"a minute each, to {until}", class_="note"),
        class_="sparks",
    )


def _spark(name: str, values: Sequence[int]) -> Markup:
    width, height = SPARK
    most = max(values) or 1
    step = width / len(values)
    # One path of bars: a minute with anything in it is at least a line high.
    bars = "".join(
        f"M{at * step:.1f} {height}v-{max(1.5, (height - 2) * value / most):.1f}"
        for at, value in enumerate(values, 0)
        if value
    )
    total = sum(values)
    return tag(
        "figure",
        tag("figcaption", tag("b", f"{total:,}"), f" {name} in {len(values)} minutes"),
        tag(
            "svg",
            tag("title", f"{name}: {total:,} in {len(values)} minutes, at most {max(values):,} in one"),
            tag("path", d=f"M0 {height}H{width}", class_="floor"),
            tag("path", d=bars, transform=f"translate({step / 2:.1f} 0)", class_="bars") if bars else None,
            width=width, height=height, viewBox=f"0 0 {width} {height}", role="img",
        ),
        class_="spark",
    )  # fmt: skip


def _filters(listing: Listing, links: Links) -> Markup:
    wanted = listing.wanted
    total = sum(listing.statuses.values())
    tabs = [("all", None, total)] + [
        (name, name, listing.statuses[name]) for name in STATUSES if name in listing.statuses
    ]
    chosen = [
        tag("a", name, " ", tag("span", f"{count:,}", class_="count"), href=links.rollouts(status=status, q=wanted.text),
            aria_current="true" if status == wanted.status else None)
        for name, status, count in tabs
    ]  # fmt: skip
    return tag(
        "form",
        tag("div", *chosen, class_="chips", role="group", aria_label="Status"),
        tag("input", type="hidden", name="status", value=wanted.status) if wanted.status else None,
        tag("label", "Search", for_="q", class_="hidden"),
        tag("input", type="search", name="q", id="q", value=wanted.text, placeholder="Id, task or label", maxlength="200"),
        action=links.rollouts(), method="get", class_="filters", role="search",
    )  # fmt: skip


def _rows(listing: Listing, links: Links) -> Markup:
    columns = (
        "rollout",
        "status",
        "outcomes",
        "branches",
        "events",
        "best",
        "sft/dpo/ppo",
        "left out",
        "on the log since",
    )
    rows = [_row(row, listing.waits.get(row.rollout_id), links) for row in listing.rows]
    return table(columns, rows, right=("branches", "events", "best", "sft/dpo/ppo", "left out"), class_="list")


def _row(row: IndexRow, waits: Sequence[str] | None, links: Links) -> tuple[Content, ...]:
    rows = row.rows
    trained = "/".join(str(rows.get(kind, 0)) for kind in ("sft", "dpo", "ppo")) if row.status == "closed" else "–"
    best = "–" if row.best is None else f"{row.best['branch']} ({number(row.best['total'])})"
    branches = "–" if row.branches is None else f"{row.branches}"
    if row.expected is not None and row.expected != row.branches:
        branches = f"{row.expected} expected" if row.branches is None else f"{branches} of {row.expected}"
    return (
        tag(
            "div",
            link(row.rollout_id, links.rollout(row.rollout_id), class_="go"),
            tag("div", row.task, class_="task"),
            class_="what",
        ),
        join(state(row.status), _why(row, waits)),
        [_beads(row), _hacked(row)],
        branches,
        f"{row.slices:,} records" if row.events is None else f"{row.events:,}",
        best,
        trained,
        f"{rows.get('rejected', 0):,}" if row.status == "closed" else "–",
        time(row.started_at),
    )


def _meanings(listing: Listing) -> Markup:
    """Explanations of the statuses in the list."""
    there = [name for name in STATUSES if name in listing.statuses]
    said = "; ".join(f"{name}: {STATES[name]}" for name in there)
    return tag("p", f"{said}.", class_="note meanings") if there else NOTHING


def _why(row: IndexRow, waits: Sequence[str] | None) -> Content:
    if row.why is not None:
        return tag("div", row.why, class_="why")
    if row.status in ("closed", "closing"):
        causes = ", ".join(cause for cause in (row.settled, row.closed) if cause and cause != "complete")
        return tag("div", causes.replace("_", " "), class_="why") if causes else None
    if not waits:
        return None
    shown = waits if len(waits) <= WAITS else (*waits[: WAITS - 1], waits[-1])  # the last condition has the time
    return tag("ul", *(tag("li", text) for text in shown), class_="why")


def _beads(row: IndexRow) -> Content:
    if not row.beads:
        return "–"
    left = sum(row.outcomes.values()) - len(row.beads[:32])
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in row.outcomes.items())
    more = tag("span", f"+{left}", class_="note") if left > 0 else None
    return tag(
        "span",
        *(bead(NAMES[letter]) for letter in row.beads[:32]),
        more,
        class_="beads",
        title=told,
        role="img",
        aria_label=told,
    )


def _hacked(row: IndexRow) -> Content:
    """A triangle if branches have a hack signal, as in the braid: hollow if none is proved."""
    if not row.hacks:
        return None
    told = "hack signals: " + ", ".join(f"{count} {sure}" for sure, count in row.hacks.items())
    kind = "mark signal" if "confirmed" in row.hacks else "mark signal hollow"
    sign = tag(
        "svg",
        tag("path", d="M7 2l5.5 9h-11z", class_=kind),
        width="14",
        height="13",
        viewBox="0 0 14 13",
        aria_hidden="true",
    )
    return tag(
        "span", sign, tag("span", sum(row.hacks.values())), class_="hacked", title=told, role="img", aria_label=told
    )


def _neighbours(listing: Listing, links: Links) -> tuple[str | None, str | None]:
    wanted, first = listing.wanted, listing.first
    common = {"status": wanted.status, "q": wanted.text}
    before = links.rollouts(**common, first=max(0, first - SIZE) or None) if first else None
    behind = links.rollouts(**common, first=first + SIZE) if first + SIZE < listing.total else None
    return before, behind
