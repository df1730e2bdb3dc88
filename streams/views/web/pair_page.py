"""Two branches next to each other, from where they diverge, and their preference row, or why there is none."""

from collections.abc import Mapping

from schemas.training import DpoRecord
from streams.log.terminal_text import WHOLE, line
from streams.views.web.links import Links
from streams.views.web.markup import Content, Markup, join, tag
from streams.views.web.page_frame import facts, link, outcome, pretty, section
from streams.views.web.reason_words import BASES
from streams.views.web.rounds_part import repairs_page
from streams.views.web.sight import Sight
from streams.views.web.strands import Parting, Strand, parting
from streams.views.web.text_differences import TEXT, differences
from streams.views.web.turns import Turn
from streams.views.web.votes_part import votes_between

ROWS = 60
"""Turns that are compared."""

CALLS = 50
"""Calls of a turn that are compared."""

BEFORE = 1
"""Turns that are shown before they part."""


def pair_page(sight: Sight, a: Strand, b: Strand, links: Links, *, prefix: str = "") -> Markup:
    """The content of the page; for a branch and itself, its rounds that are preference rows."""
    if a.branch == b.branch:
        return repairs_page(sight, a, links, prefix)
    apart = parting(a.transcript, b.transcript)
    return join(
        tag(
            "div",
            tag("h1", f"Branches {a.branch} and {b.branch}"),
            tag("span", f"of {sight.rollout_id}", class_="note"),
            class_="title",
        ),
        _row(sight, a, b, links, prefix),
        section(
            "Side by side",
            tag("p", parting_words(apart), class_="parting-note", id=f"{prefix}parting"),
            _sides(sight, a, b, apart, links),
        ),
    )


def parting_words(apart: Parting | None) -> str:
    """Where two branches diverge, in a sentence."""
    if apart is None:
        return "They did and saw the same from beginning to end."
    same = "They part with their first turn"
    if apart.turn:
        before = "The first turn is" if apart.turn == 1 else f"The first {apart.turn} turns are"
        same = f"{before} the same; they part at turn {apart.turn}"
    return f"{same}: {apart.why}."


def _row(sight: Sight, a: Strand, b: Strand, links: Links, prefix: str) -> Markup:
    row = sight.pair_row(a.branch, b.branch)
    if row is None:
        why: list[str] = sight.why_no_pair(a.branch, b.branch)
        voted = votes_between(sight, a.branch, b.branch)
        why += [] if voted is None else [f"The votes: {voted}."]
        return section("No preference row", tag("ul", *(tag("li", text) for text in why), id=f"{prefix}why-no-pair"))
    return section("The preference row", _preference(sight, row, links), id_=f"{prefix}preference")


def _preference(sight: Sight, row: DpoRecord, links: Links) -> Markup:
    return facts(
        [
            ("chosen", f"branch {row.chosen_branch}"),
            ("rejected", f"branch {row.rejected_branch}"),
            ("basis", f"{row.basis}: {BASES[row.basis]}"),
            ("margin", f"{row.margin:.3f}"),
            ("P(better)", None if row.p_chosen is None else f"{row.p_chosen:.3f}"),
            ("votes", votes_between(sight, row.chosen_branch, row.rejected_branch)),
            ("row", link(row.record_id, links.rows(sight.rollout_id, row.record_id))),
        ]
    )


def _sides(sight: Sight, a: Strand, b: Strand, apart: Parting | None, links: Links) -> Markup:
    first = 0 if apart is None else max(0, apart.turn - BEFORE)
    count = max(len(a.transcript.turns), len(b.transcript.turns))
    heads = tag("tr", tag("th", "turn", scope="col"), *(_head(sight, strand, (a, b), links) for strand in (a, b)))
    rows = [heads]
    if first:
        rows.append(
            tag(
                "tr",
                tag("td", f"0–{first - 1}" if first > 1 else "0"),
                tag("td", "the same in both", colspan="2", class_="note"),
            )
        )
    row = sight.pair_row(a.branch, b.branch)
    marks = {
        strand.branch: "mark" if row is None else "ins" if strand.branch == row.chosen_branch else "del"
        for strand in (a, b)
    }
    rows += [_compared(number, a, b, marks) for number in range(first, min(count, first + ROWS))]
    if count > first + ROWS:
        rows.append(
            tag("tr", tag("td", ""), tag("td", f"and {count - first - ROWS} more turns", colspan="2", class_="note"))
        )
    return tag("div", tag("table", *rows, class_="sides"), class_="wide")


def _side(row: DpoRecord | None, strand: Strand) -> Content:
    """Which side of the preference row a branch is."""
    if row is None:
        return None
    chosen = row.chosen_branch == strand.branch
    return tag("span", "chosen" if chosen else "rejected", class_="chip good" if chosen else "chip bad")


def _head(sight: Sight, strand: Strand, pair: tuple[Strand, Strand], links: Links) -> Markup:
    a, b = pair
    return tag(
        "th",
        link(f"branch {strand.branch}", links.branch(sight.rollout_id, strand.branch)),
        " ",
        outcome(strand.objective),
        " ",
        _side(sight.pair_row(a.branch, b.branch), strand),
        scope="col",
    )


def _at(strand: Strand, number: int) -> Turn | None:
    turns = strand.transcript.turns
    return turns[number] if number < len(turns) else None


def _compared(number: int, one: Strand, two: Strand, marks: Mapping[int, str]) -> Markup:
    """A turn of both: once if it is the same, else with the lines marked that only one of them has."""
    a, b = _at(one, number), _at(two, number)
    left, right = _texts(a), _texts(b)
    if a is not None and b is not None and a.saw == b.saw:
        parts = [_part(name, text, None, "mark") for name, text in left or ()]
        told = tag("details", tag("summary", f"the same in both: {a.tools or 'words only'}"), *parts)
        return tag("tr", tag("td", number), tag("td", told, colspan="2"), class_="same")
    cells: list[Content] = []
    for strand, own, other in ((one, left, right), (two, right, left)):
        known = dict(other or ())
        parts = [_part(name, text, known.get(name), marks[strand.branch]) for name, text in own or ()]
        before = "ended before" if strand.standing.ended else "has not come so far"
        ended = tag("span", before, class_="note") if own is None else None
        cells.append(tag("td", ended, *parts, data_branch=strand.branch))
    return tag("tr", tag("td", number), *cells, class_="differs")


def _texts(turn: Turn | None) -> list[tuple[str, str]] | None:
    """The texts of a turn, by their names."""
    if turn is None:
        return None
    found = [(words.kind, words.text) for words in turn.given] + ([("says", turn.text)] if turn.text else [])
    seen: dict[str, int] = {}
    for call in turn.calls[:CALLS]:
        seen[call.name] = seen.get(call.name, 0) + 1
        nth = f" #{seen[call.name]}" if seen[call.name] > 1 else ""
        found.append((f"{call.name}{nth}", pretty(call.arguments)))
        result = call.output if call.output is not None else call.error
        if result is not None:
            found.append((f"{call.name}{nth} →", result))
    return found + ([(turn.ending.kind, turn.ending.text)] if turn.ending else [])


def _part(name: str, text: str, other: str | None, kind: str) -> Markup:
    cut = text[:TEXT]
    left = len(text) - len(cut)
    shown: Content = cut if other is None else differences(cut, other[:TEXT], kind)
    fresh = "fresh" if other is None else ""
    more = tag("p", f"… {left:,} more characters", class_="note") if left else None
    spoken = "spoken" if name in ("says", "answer", "user", "error") else None
    return tag(
        "div",
        tag("span", line(name, WHOLE), class_="who"),
        tag("pre", shown, class_=fresh or None, tabindex="0" if left or text.count("\n") > 18 else None),
        more,
        class_=spoken,
    )
