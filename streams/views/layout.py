"""The layout of sections: a heading, a table or lines, and never more than a screenful of them.

Cells are `Text`: square brackets in foreign text are never taken for markup.
"""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from streams.log.terminal_text import SCREENFUL
from streams.views.tables import table

STYLES = {
    "pass": "green", "closed": "green", "ok": "green", "fail": "red", "broken": "red", "problem": "red",
    "unknown": "yellow", "warning": "yellow", "open": "cyan", "settled": "cyan", "settling": "cyan", "closing": "cyan",
}  # fmt: skip
"""Words that have a colour, on a terminal."""


def cell(text: object) -> Text:
    """A cell with its text unchanged, in a colour if the word has one."""
    plain = str(text)
    return Text(plain, style=STYLES.get(plain, ""))


def sheet(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: tuple[str, ...] = (),
    limit: int = SCREENFUL,
    narrow: tuple[str, ...] = (),
    spare: tuple[str, ...] = (),
) -> RenderableType:
    """A table with a heading; columns in `narrow` are never wrapped, those in `spare` left out if there is no room."""
    lines = list(rows)
    made = table("", *columns, right=right, whole=narrow, spare=spare)
    for row in lines[:limit]:
        made.add_row(*(cell(each) for each in row))
    return section(title, made, *more(len(lines) - limit))


def facts(pairs: Iterable[tuple[str, str]]) -> RenderableType:
    """Names with their values."""
    made = table("", "", "")
    for name, text in pairs:
        made.add_row(Text(name, style="dim"), Text(text))
    return made


def lines(title: str, texts: Sequence[str], *, limit: int = SCREENFUL) -> RenderableType:
    """Lines with a heading."""
    return section(title, *(Text(text) for text in texts[:limit]), *more(len(texts) - limit))


def section(title: str, *parts: RenderableType) -> RenderableType:
    """A heading and its content, after an empty line."""
    heading = [Text(), Text(title, style="bold")] if title else []
    return Group(*heading, *parts)


def more(count: int) -> list[Text]:
    """How many were not shown."""
    return [Text(f"... and {count:,} more (--json has all)", style="dim")] if count > 0 else []
