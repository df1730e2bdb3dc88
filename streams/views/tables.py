"""Tables for people: one layout for all commands, in which no number is truncated and no word is broken.

A table that is wider than the terminal is first wrapped between words, in columns with prose. Then less important
columns are left out, which a line below reports. Rows that still do not fit are stacked: a line for each cell. Output
that is not a terminal gets every cell whole, on one line.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from streams.jobs.counts import Counts


PIPE_WIDTH = 100_000
"""Columns without a terminal: no reader of a pipe wants wrapped lines."""

GAP = 2
"""Columns between columns."""

READABLE = 20
"""Prose is not wrapped into a column narrower than this."""

LONG_WORD = 32
"""A row with a longer word (a path, a digest) is stacked alone, before all rows are."""


def console() -> Console:
    """Standard output, with colours on a terminal only."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def show(*things: RenderableType) -> None:
    """Print; a string is printed unchanged, without markup."""
    out = console()
    for thing in things:
        out.print(Text(thing) if isinstance(thing, str) else thing, crop=False)


Row = tuple[Text, ...]


@dataclass
class Grid:
    """A table that fits itself to the width it is printed in."""

    title: str
    columns: tuple[str, ...]
    right: tuple[str, ...] = ()
    """Columns that are aligned to the right; they are never wrapped."""
    whole: tuple[str, ...] = ()
    """Other columns that are never wrapped."""
    spare: tuple[str, ...] = ()
    """Columns that may be left out, the least important first."""
    rows: list[Row] = field(default_factory=list)

    def add_row(self, *cells: str | Text) -> None:
        """Add a row. Text is not parsed: square brackets are not markup."""
        self.rows.append(tuple(each if isinstance(each, Text) else Text(each) for each in cells))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines."""
        if self.title:
            yield Text(self.title, style="bold")
        for line in self._lines(options.max_width):
            line.rstrip()
            line.no_wrap, line.overflow = True, "ignore"
            yield line

    def _lines(self, room: int) -> Iterator[Text]:
        for left_out in range(len(self.spare) + 1):
            names = self.spare[:left_out]
            shown = [at for at, name in enumerate(self.columns) if name not in names]
            widths = self._widths(shown, self.rows, room)
            if widths is not None:
                yield from self._table(shown, widths, room)
                yield from _left_out(names, room)
                return
        every = range(len(self.columns))
        widths = self._widths(every, [row for row in self.rows if not _has_long_word(row)], room)
        if widths is not None and any(not _has_long_word(row) for row in self.rows):
            yield from self._table(every, widths, room)
            return
        for row in self.rows:
            yield from self._stacked(row, room)

    def _widths(self, shown: Sequence[int], rows: Sequence[Row], room: int) -> list[int] | None:
        """The width of each shown column; None if it cannot be reached without breaking a word."""
        natural, least = [], []
        for at in shown:
            texts = [self.columns[at], *(row[at].plain for row in rows)]
            widest = max(map(cell_len, texts))
            natural.append(widest)
            wrapped = self.columns[at] not in self.right and self.columns[at] not in self.whole
            least.append(max(_longest_word(texts), min(widest, READABLE)) if wrapped else widest)
        over = room - GAP * (len(shown) - 1) - sum(least)
        wanted = sum(natural) - sum(least)
        if over < 0:
            return None
        share = min(1.0, over / wanted) if wanted else 0.0
        return [low + int((high - low) * share) for low, high in zip(least, natural, strict=True)]

    def _table(self, shown: Sequence[int], widths: list[int], room: int) -> Iterator[Text]:
        heads = tuple(Text(name, style="bold") for name in self.columns)
        for row in (heads, *self.rows) if any(self.columns) else self.rows:
            cells = [_wrapped(row[at], width) for at, width in zip(shown, widths, strict=True)]
            if any(cell_len(line.plain) > width for lines, width in zip(cells, widths, strict=True) for line in lines):
                yield from self._stacked(row, room)
                continue
            for number in range(max(map(len, cells))):
                line = Text()
                for at, (lines, width) in enumerate(zip(cells, widths, strict=True)):
                    part = lines[number].copy() if number < len(lines) else Text()
                    space = " " * (width - cell_len(part.plain))
                    line.append(" " * GAP if at else "")
                    line.append_text(Text(space) + part if self.columns[shown[at]] in self.right else part + space)
                yield line

    def _stacked(self, row: Row, room: int) -> Iterator[Text]:
        """A row as lines: its first cell, then each other cell behind the name of its column."""
        yield from _wrapped(row[0], room)
        name_width = max(map(cell_len, self.columns[1:]), default=0)
        for name, each in zip(self.columns[1:], row[1:], strict=True):
            begin = "  " + (f"{name:<{name_width}}  " if name_width else "")
            for number, line in enumerate(_wrapped(each, room - len(begin)) if each.plain else ()):
                yield Text(begin if not number else " " * len(begin)) + line


def _wrapped(text: Text, width: int) -> list[Text]:
    """Lines of at most this width, broken between words only; a longer word has a line of its own."""
    if cell_len(text.plain) <= width:
        return [text]
    lines: list[str] = []
    for word in text.plain.split():
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [Text(line, style=text.style) for line in lines]


def _longest_word(texts: Sequence[str]) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def _has_long_word(row: Row) -> bool:
    return _longest_word([each.plain for each in row]) > LONG_WORD


def _left_out(names: Sequence[str], room: int) -> list[Text]:
    if not names:
        return []
    said = f"Not in {room} columns: {'; '.join(names)}. A wider terminal shows them, and so does `| less -S`."
    return _wrapped(Text(said, style="dim"), room)


def table(
    title: str, *columns: str, right: tuple[str, ...] = (), whole: tuple[str, ...] = (), spare: tuple[str, ...] = ()
) -> Grid:
    """An empty table."""
    return Grid(title, columns, right, whole, spare)


def counts_table(counts: "Counts") -> Grid:
    """The counts of a run."""
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
