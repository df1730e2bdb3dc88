"""The rejected rows, grouped by their reasons: a rollout of 64 branches rejects a thousand pairs for three reasons."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from schemas.training import RejectedRecord
from streams.log.terminal_text import several
from streams.views.web.links import Links
from streams.views.web.markup import NOTHING, Content, Markup, join, tag
from streams.views.web.page_frame import link, table
from streams.views.web.reason_words import reason_words
from streams.views.web.sight import Sight

NAMED = 12
"""Branches or pairs that are named at once; further ones are folded."""

SHOWN = 300
"""Branches or pairs that are named at all."""

KINDS = ("sft", "dpo", "ppo")


class Group(NamedTuple):
    """Rows that were rejected for the same reasons."""

    kind: str
    why: tuple[str, ...]
    rows: tuple[RejectedRecord, ...]

    @property
    def n_left(self) -> int:
        """How many rows were rejected: one record may represent many pairs."""
        return sum(_standing_for(row) for row in self.rows)


def groups_of(rejected: Iterable[RejectedRecord]) -> list[Group]:
    """Rejected rows by kind and reasons, in the order of kinds, the most frequent reasons first."""
    found: dict[tuple[str, tuple[str, ...]], list[RejectedRecord]] = {}
    for row in rejected:
        why = tuple(reason for reason in row.reasons if not reason.startswith("pairs:"))
        found.setdefault((row.kind, why), []).append(row)
    groups = [Group(kind, tuple(reason_words(why)), tuple(rows)) for (kind, why), rows in found.items()]
    return sorted(
        groups, key=lambda each: (KINDS.index(each.kind) if each.kind in KINDS else 9, -each.n_left, each.why)
    )


def _standing_for(row: RejectedRecord) -> int:
    told = [
        int(rest)
        for reason in row.reasons
        for code, _, rest in [reason.partition(":")]
        if code == "pairs" and rest.isdigit()
    ]
    return told[0] if told else 1


def left_out(sight: Sight, links: Links, *, to_records: bool) -> Markup:
    """The table; `to_records` leads to each record instead of to its branches."""
    rows = [
        (each.kind.upper(), f"{each.n_left:,}", tag("ul", *(tag("li", text) for text in each.why), class_="plain"),
         _which(sight, each, links, to_records=to_records))
        for each in groups_of(sight.account.rejected)
    ]  # fmt: skip
    if not rows:
        return NOTHING
    return table(("row", "left out", "why", "branches"), rows, right=("left out",), class_="left-out")


def _which(sight: Sight, group: Group, links: Links, *, to_records: bool) -> Content:
    named = list(islice(_named(sight, group.rows, links, to_records=to_records), SHOWN))
    left = group.n_left - sum(each.stands_for for each in named)
    items = [each.name for each in named]
    if left:
        items.append(f"and {left:,} more")
    if len(items) <= NAMED:
        return _listed(items)
    noun = several(group.n_left, "pair" if group.kind == "dpo" else "row")
    return tag("details", tag("summary", noun), _listed(items))


def _listed(items: Sequence[Content]) -> Content:
    return [join(", " if at else None, item) for at, item in enumerate(items)]


class _Named(NamedTuple):
    """Branches or a pair, with a link."""

    name: Content
    stands_for: int = 1


def _named(sight: Sight, rows: Iterable[RejectedRecord], links: Links, *, to_records: bool) -> Iterator[_Named]:
    for row in rows:
        name = " and ".join(map(str, row.branches))
        if len(row.branches) > 2:
            yield from _pairs(sight, row, links)
        elif to_records:
            yield _Named(link(name, links.data("rejected", row.record_id), title=row.record_id))
        elif len(row.branches) == 2:
            yield _Named(link(name, links.pair(sight.rollout_id, row.branches[0], row.branches[1])))
        else:
            name = f"rounds of {name}" if row.kind == "dpo" else name
            yield _Named(link(name, links.branch(sight.rollout_id, row.branches[0]) if row.branches else None))


def _pairs(sight: Sight, row: RejectedRecord, links: Links) -> Iterator[_Named]:
    """The pairs of a record that represents many; its branches if the pairs are not known."""
    pairs = sight.pairs_behind(row)
    for a, b in pairs:
        yield _Named(link(f"{a} and {b}", links.pair(sight.rollout_id, a, b)))
    if not pairs:
        more = " …" if len(row.branches) > NAMED else ""
        yield _Named(f"among {', '.join(map(str, sorted(row.branches)[:NAMED]))}{more}", _standing_for(row))
