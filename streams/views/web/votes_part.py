"""The votes of a rollout, both ways: row over column by the side shown first, and the pairs whose answer changed with
the order.
"""

from collections.abc import Iterator, Sequence

from schemas.judging import JudgeVote
from streams.log.terminal_text import WHOLE, line, several
from streams.views.vote_table import Cell
from streams.views.web.markup import NOTHING, Content, Markup, join, tag
from streams.views.web.page_frame import section, table
from streams.views.web.sight import Sight

MATRIX = 16
"""Branches up to which votes are shown as a matrix of counts; beyond, as a map of small squares."""

MAP = 160
"""Branches up to which there is a map; beyond, pair by pair."""

SQUARE = 13
"""Width of a square of the map."""

EDGE = 30
"""Room for the names of branches."""

CHANGED = 50
"""Votes that changed with the order that are on the page."""

AT_ONCE = 6
"""How many of them are not folded."""


def votes_part(sight: Sight) -> Markup:
    """The votes of a rollout; empty if there are none."""
    counted = sight.counted
    if not counted.cells and not counted.scores:
        return NOTHING
    members = counted.branches
    shown: Markup
    if 0 < len(members) <= MATRIX:
        rows = [(tag("strong", row), *(_cell(sight, row, column) for column in members)) for row in members]
        shown = table(("over", *map(str, members)), rows, right=[str(member) for member in members], class_="matrix")
    elif members and len(members) <= MAP:
        shown = _map(sight)
    else:
        texts = [
            f"{a} over {b}: {counted.cells[a, b]}; {b} over {a}: {counted.cells[b, a]}" for a, b in counted.pairs[:200]
        ]
        shown = tag("ul", *(tag("li", text) for text in texts))
    legend = "Row over column: wins when shown first + wins when shown second; = ties, ? calls without an answer."
    scores = ", ".join(
        f"branch {index}: {sum(found) / len(found):.1f}" for index, found in sorted(counted.scores.items())
    )
    return section(
        "Votes",
        shown,
        tag("p", f"Mean scores: {scores}.", class_="note") if scores else None,
        _flipped(sight),
        tag(
            "p",
            "No answer: ",
            ", ".join(f"{cause} {count}" for cause, count in sorted(counted.causes.items())),
            class_="note",
        )
        if counted.causes
        else None,
        id_="votes",
        note=legend,
    )


def votes_between(sight: Sight, one: int, other: int) -> str | None:
    """The votes on two branches, in words; None if no vote compares them."""
    cell, back = (sight.counted.cells.get(pair) for pair in ((one, other), (other, one)))
    if cell is None or back is None:
        return None
    parts = [
        f"{name} won {each.shown_first + each.shown_second} ({each.shown_first} when shown first, {each.shown_second} when second)"
        for name, each in ((one, cell), (other, back))
    ]
    return "; ".join([*parts, *([several(cell.ties, "tie")] if cell.ties else [])])


def _map(sight: Sight) -> Markup:
    """The wins of each over each, best branches first: a square for each pair that was compared, in the colour of its
    row's fate."""
    voted = set(sight.counted.branches)
    order = [strand.branch for strand in sight.strands if strand.branch in voted]
    at = {branch: EDGE + place * SQUARE for place, branch in enumerate(order)}
    size = EDGE + len(order) * SQUARE
    squares = [
        tag(
            "rect", tag("title", f"{one} over {other}: {cell}"), x=at[other] + 1, y=at[one] + 1, width=SQUARE - 2, height=SQUARE - 2,
            rx=2, class_=_fate(cell, sight.counted.cells[other, one]),
        )
        for (one, other), cell in sorted(sight.counted.cells.items()) if one in at and other in at
    ]  # fmt: skip
    names = [
        join(
            tag("text", branch, x=EDGE - 5, y=at[branch] + SQUARE - 3, class_="end"),
            tag(
                "text",
                branch,
                transform=f"translate({at[branch] + SQUARE - 3} {EDGE - 4}) rotate(-90)",
            ),
        )
        for branch in order
    ]
    drawn = tag("svg", *names, *squares, width=size, height=size, viewBox=f"0 0 {size} {size}", class_="votes-map", role="img",
                aria_label="Votes, row over column")  # fmt: skip
    fates = (("won", "row won"), ("lost", "row lost"), ("even", "even"), ("flip", "the first shown won both times"))
    legend = [
        tag(
            "li",
            tag(
                "svg",
                tag("rect", width="12", height="12", rx="2", class_=kind),
                width="12",
                height="12",
                class_="votes-map",
            ),
            name,
        )
        for kind, name in fates
    ]
    return join(tag("div", drawn, class_="scroll map"), tag("ul", *legend, class_="legend"))


def _fate(cell: Cell, other: Cell) -> str:
    if _flips(cell, other):
        return "flip"
    won, lost = cell.shown_first + cell.shown_second, other.shown_first + other.shown_second
    return "won" if won > lost else "lost" if lost > won else "even"


def _flips(cell: Cell, other: Cell) -> bool:
    """Whether the first shown won both times."""
    return bool(cell.shown_first and other.shown_first and not cell.shown_second and not other.shown_second)


def _cell(sight: Sight, row: int, column: int) -> Content:
    if row == column:
        return tag("span", "·", class_="faint")
    cell = sight.counted.cells.get((row, column))
    if cell is None:
        return ""
    flipped = _flips(cell, sight.counted.cells[column, row])
    return tag(
        "span",
        str(cell),
        class_="flip" if flipped else None,
        title="the first shown won both times" if flipped else None,
    )


def _flipped(sight: Sight) -> Markup:
    """Votes whose answer changed when the order was swapped: the same pair, judge and sample."""
    found = list(flipped_votes(sight.account.votes))
    if not found:
        said = "No vote changed when the order was swapped." if sight.counted.cells else ""
        return tag("p", said, class_="note") if said else NOTHING
    items = []
    for one, other in found[:CHANGED]:
        items.append(
            tag(
                "li",
                f"{one.a} and {one.b}, sample {one.sample} ({line(one.judge)}): {_said(one)}; {_said(other)}",
                *(
                    tag("div", f"{name}: {line(vote.reasoning, WHOLE)}", class_="note")
                    for name, vote in ((_order(one), one), (_order(other), other))
                    if vote.reasoning
                ),
            )
        )
    title = several(len(found), "vote changed", "votes changed") + " when the order was swapped"
    rest: Content = None
    if len(items) > AT_ONCE:
        left = f"{len(found) - AT_ONCE} more" + (f", {CHANGED - AT_ONCE} of them here" if len(found) > CHANGED else "")
        rest = tag("details", tag("summary", left), tag("ul", *items[AT_ONCE:]))
    return tag("div", tag("h3", title), tag("ul", *items[:AT_ONCE]), rest, id="flipped")


def flipped_votes(votes: Sequence[JudgeVote]) -> Iterator[tuple[JudgeVote, JudgeVote]]:
    """Pairs of votes that differ only in the order, and in their answer."""
    by_key: dict[tuple[object, ...], JudgeVote] = {}
    for vote in votes:
        if vote.b is None or vote.preferred is None:
            continue
        key = (vote.a, vote.b, vote.sample, vote.judge)
        other = by_key.get((*key, "ba" if vote.order == "ab" else "ab"))
        by_key[*key, vote.order] = vote
        if other is not None and other.preferred != vote.preferred:
            yield (other, vote) if other.order == "ab" else (vote, other)


def _order(vote: JudgeVote) -> str:
    return f"{vote.a} shown first" if vote.order == "ab" else f"{vote.b} shown first"


def _said(vote: JudgeVote) -> str:
    won = "a tie" if vote.preferred == "tie" else f"{vote.a if vote.preferred == 'a' else vote.b} won"
    return f"{_order(vote)}: {won}"
