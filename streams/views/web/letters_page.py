"""Dead letters: records that did not count, their positions, and why."""

from collections.abc import Sequence

from streams.log.letter_list import DeadLetter
from streams.log.terminal_text import WHOLE, line
from streams.views.web.links import Links
from streams.views.web.markup import Markup, join, tag
from streams.views.web.page_frame import link, pages, table, time

SIZE = 50
"""Letters on a page."""


def letters_page(letters: Sequence[DeadLetter], total: int, first: int, rollout_id: str | None, links: Links) -> Markup:
    """The content of the page."""
    rows = [
        (
            each.letter.reason, tag("code", each.letter_id),
            link(line(each.rollout_id), links.rollout(each.rollout_id)) if each.rollout_id else "–",
            time(each.at), f"{each.size:,}", line(each.letter.message, WHOLE),
        )
        for each in letters
    ]  # fmt: skip
    before = links.letters(first=max(0, first - SIZE) or None, rollout=rollout_id) if first else None
    behind = links.letters(first=first + SIZE, rollout=rollout_id) if first + SIZE < total else None
    about = f" of {rollout_id}" if rollout_id else ""
    return join(
        tag(
            "div",
            tag("h1", "Dead letters"),
            tag("span", f"{total:,}{about}, the last ones first", class_="note"),
            class_="title",
        ),
        table(("reason", "id", "rollout", "at", "bytes", "message"), rows, right=("bytes",))
        if rows
        else tag("p", "None: everything that came counted.", class_="empty"),
        tag("p", "What a letter holds: ", tag("code", "braid dead-letters show ID"), class_="note") if rows else None,
        pages(total, first, SIZE, (before, behind)),
    )
