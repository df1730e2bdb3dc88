"""The frame of every page, and the small parts that pages share."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.jsontext import compact, parse
from streams.log.terminal_text import moment, several
from streams.views.web.links import Links
from streams.views.web.markup import NOTHING, Content, Markup, join, tag

OUTPUT = 6_000
"""Characters of a text on a page; a link leads to the rest."""

FOLDED = 900
"""Characters from which an output is folded."""

LINES = 14
"""Lines from which an output is folded."""


class Head(NamedTuple):
    """The title and description of a page."""

    title: str
    crumbs: tuple[tuple[str, str | None], ...] = ()
    """Texts and addresses, from the top."""
    data: str | None = None
    """The address of the same data as JSON."""
    live: str | None = None
    """The rollout whose changes it shows; "" for all; None for a page that does not change."""
    state: str = ""
    """Its version: a live page reloads when it changes."""


def document(head: Head, links: Links, place: str, *content: Content) -> Markup:
    """A whole page of a server."""
    whole = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{head.title} · braid"),
            tag("link", rel="icon", href=links.static("braid.svg")),
            tag("link", rel="stylesheet", href=links.static("view.css")),
            tag("script", src=links.static("view.js"), defer=True),
        ),
        tag(
            "body",
            tag("a", "Skip to the content", href="#content", class_="skip"),
            _header(head, links),
            tag("main", *content, id="content", tabindex="-1", data_live=head.live, data_state=head.state),
            _footer(head, place),
        ),
        lang="en",
    )
    return Markup(f"<!doctype html>\n{whole}")


def _header(head: Head, links: Links) -> Markup:
    crumbs = [
        tag("li", text if href is None else tag("a", text, href=href), aria_current="page" if href is None else None)
        for text, href in (*head.crumbs, (head.title, None))
    ]
    return tag(
        "header",
        tag(
            "a", _logo(), tag("span", "braid"), href=links.rollouts(), class_="brand", aria_label="braid: all rollouts"
        ),
        tag("nav", tag("ol", *crumbs), class_="crumbs", aria_label="Where you are"),
        tag(
            "nav",
            tag("a", "Rollouts", href=links.rollouts()),
            tag("a", "Dead letters", href=links.letters()),
            tag("button", "Theme", type="button", id="theme", hidden=True),
            class_="tabs",
            aria_label="Pages",
        ),
        class_="top",
    )


def _footer(head: Head, place: str) -> Markup:
    keys = tag(
        "details",
        tag("summary", "Keys"),
        tag(
            "p",
            *(join(tag("kbd", key), f" {does}  ") for key, does in (
                ("/", "search"), ("j", "next"), ("k", "previous"), ("Enter", "open"), ("u", "up"), ("t", "theme"),
            )),
        ),
    )  # fmt: skip
    data = None if head.data is None else tag("a", "This page as JSON", href=head.data)
    live = None if head.live is None else tag("span", "live", id="live", class_="live", hidden=True)
    return tag("footer", tag("span", place, class_="place"), tag("span", "Times are UTC"), data, live, keys)


def _logo() -> Markup:
    return tag(
        "svg",
        tag("path", d="M2 6C9 6 9 18 22 18", class_="a"),
        tag("path", d="M2 12C8 12 12 6 22 6", class_="b"),
        tag("path", d="M2 18C9 18 12 12 22 12", class_="c"),
        width="22", height="22", viewBox="0 0 24 24", class_="logo", aria_hidden="true",
    )  # fmt: skip


# -- parts -----------------------------------------------------------------------------------------------------------------------


def section(title: str, *content: Content, id_: str | None = None, note: Content = None) -> Markup:
    """A part of a page with a heading."""
    aside = None if note is None else tag("p", note, class_="note")
    return tag("section", tag("h2", title), aside, *content, id=id_)


def facts(pairs: Iterable[tuple[str, Content]]) -> Markup:
    """Names and values."""
    return tag(
        "dl",
        *(join(tag("dt", name), tag("dd", value)) for name, value in pairs if value not in (None, "")),
        class_="facts",
    )


def cards(pairs: Iterable[tuple[str, Content]], wide: Sequence[str] = ()) -> Markup:
    """Names above values, side by side; those in `wide` have a line of their own."""
    made = [
        tag("div", tag("dt", name), tag("dd", value), class_="all" if name in wide else None)
        for name, value in pairs if value not in (None, "")
    ]  # fmt: skip
    return tag("dl", *made, class_="cards")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Content]], right: Sequence[str] = (), class_: str = ""
) -> Markup:
    """A table. Columns in `right` contain numbers."""
    sides = ["num" if column in right else None for column in columns]
    return tag(
        "div",
        tag(
            "table",
            tag(
                "thead",
                tag(
                    "tr",
                    *(tag("th", column, class_=side, scope="col") for column, side in zip(columns, sides, strict=True)),
                ),
            ),
            tag(
                "tbody",
                *(
                    tag("tr", *(tag("td", cell, class_=side) for cell, side in zip(row, sides, strict=True)))
                    for row in rows
                ),
            ),
        ),
        class_=f"wide {class_}".strip(),
    )


def link(content: Content, href: str | None, **attributes: object) -> Markup:
    """A link; only its text if there is no such page."""
    return join(content) if href is None else tag("a", content, href=href, **attributes)


def outcome(status: str) -> Markup:
    """An outcome, in its colour and with its sign."""
    return tag("span", status.replace("_", " "), class_=f"outcome {status}")


def bead(status: str, title: str | None = None) -> Markup:
    """A bead for an outcome."""
    return tag("i", class_=f"dot {status}", title=title or status.replace("_", " "))


STATES = {
    "open": "its branches run, or verdicts are missing",
    "settled": "its outcomes are final, and its judge is still asked",
    "closing": "it is decided, and its ranking and rows are being written",
    "closed": "it is ranked, and its rows are made",
    "broken": "its worker gave it up",
}
"""The statuses of a rollout, in words."""


def state(status: str) -> Markup:
    """The status of a rollout."""
    return tag("span", status, class_=f"state {status}", title=STATES.get(status))


def time(milliseconds: int | None) -> Content:
    """A time, or a dash."""
    if not milliseconds:
        return "–"
    said = moment(milliseconds)
    return tag("time", said, datetime=said.replace(" ", "T") + "Z") if said[:1].isdigit() and "ms" not in said else said


def block(text: str, more: str | None = None, *, fold: bool = True, label: str = "") -> Markup:
    """A text unchanged; a long one is folded, and a still longer one truncated, with a link to the whole."""
    cut = text[:OUTPUT]
    left = len(text) - len(cut)
    rest = None
    if left:
        said = f"… {left:,} more characters"
        rest = tag("p", said, "; " if more else None, link("all of it", more) if more else None, class_="note")
    body = join(tag("pre", cut, tabindex="0" if fold else None), rest)
    lines = cut.count("\n") + 1
    if not fold or (len(cut) <= FOLDED and lines <= LINES):
        return body
    size = f"{len(text):,} characters, {several(text.count(chr(10)) + 1, 'line')}"
    return tag("details", tag("summary", label, " " if label else None, tag("span", size, class_="note")), body)


def pretty(arguments: str) -> str:
    """The arguments of a call in readable form: one `name: value` a line, texts without quotes; unchanged if they are
    not an object.
    """
    try:
        value = parse(arguments)
    except ValueError:
        return arguments
    if not isinstance(value, dict):
        return arguments
    if not value:
        return ""
    lines = []
    for name, part in value.items():
        said = part if isinstance(part, str) else compact(part)
        lines.append(f"{name}:\n{said}" if "\n" in said else f"{name}: {said}")
    return "\n".join(lines)


def pages(total: int, first: int, size: int, to: "Sequence[str | None] | None" = None) -> Markup:
    """The position within many items, with links to the previous and the next part."""
    if total <= size and not first:
        return NOTHING
    last = min(total, first + size)
    before, behind = to or (None, None)
    return tag(
        "p",
        link("← earlier", before, rel="prev") if before else None,
        f" {first + 1:,} to {last:,} of {total:,} ",
        link("later →", behind, rel="next") if behind else None,
        class_="pages",
    )
