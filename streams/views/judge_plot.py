"""How judges behave over time, as a picture: one SVG that every browser can show.

A panel for each share with a line for each judge, and one for the agreement between judges. Spans of time without an
answer have no point: an undefined value is not drawn as 0.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from agents.judge.agreement import JudgeStats, TimedVote, agreement, buckets, by_judge, judge_stats, naming
from streams.log.terminal_text import line, moment

WIDTH, LEFT, RIGHT, TOP = 960, 60, 220, 34
PANEL, GAP = 120, 44
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")


class Panel(NamedTuple):
    """One share of a judge."""

    title: str
    of: Callable[[JudgeStats], float | None]
    fair: float | None = None
    """The value of a good judge, drawn as a dashed line."""


PANELS = (
    Panel("Same answer in both orders", lambda stats: stats.position_consistency, 1.0),
    Panel("What was shown first is preferred", lambda stats: stats.first_position_rate, 0.5),
    Panel("Ties", lambda stats: stats.tie_rate),
    Panel("No answer", lambda stats: 1.0 - stats.valid / stats.votes if stats.votes else None, 0.0),
)


class Point(NamedTuple):
    """A value in a span of time, which is named by its number."""

    span: int
    value: float


def plot_svg(votes: Sequence[TimedVote], spans: int) -> str:
    """The picture. The same votes give the same bytes."""
    cut = buckets(votes, spans)
    name = naming(votes)
    judges = list(by_judge(votes, name))
    inside = [by_judge(found, name) for _, found in cut]
    drawn = []
    for number, panel in enumerate(PANELS):
        lines = []
        for judge in judges:
            values = [panel.of(judge_stats([each.vote for each in found.get(judge, [])])) for found in inside]
            lines.append(_points(values))
        drawn.append(_panel(number, panel.title, (0.0, 1.0), panel.fair, lines, len(cut)))
    alphas = [_points(agreement(found) if len(found) > 1 else None for found in inside)]
    title = "Agreement between judges (Krippendorff's alpha)"
    drawn.append(_panel(len(PANELS), title, (-1.0, 1.0), 1.0, alphas, len(cut)))
    height = TOP + (len(PANELS) + 1) * (PANEL + GAP)
    times = ""
    if cut:
        first, last = (moment(at) for at in (cut[0][0], max(vote.at for vote in votes)))
        times = _text(LEFT, height - 12, first) + _text(WIDTH - RIGHT, height - 12, last, "end")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + _legend(judges)
        + "".join(drawn)
        + times
        + "</svg>\n"
    )


def _points(values: Iterable[float | None]) -> list[Point]:
    return [Point(span, value) for span, value in enumerate(values) if value is not None]


def _panel(
    number: int, title: str, scale: tuple[float, float], fair: float | None, lines: Sequence[list[Point]], spans: int
) -> str:
    top, low, high = TOP + number * (PANEL + GAP), *scale

    def x(span: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (span + 0.5) / max(1, spans), 1)

    def y(value: float) -> float:
        return round(top + PANEL * (high - min(max(value, low), high)) / (high - low), 1)

    made = [_text(LEFT, top - 8, title, weight="bold")]
    made.append(
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{PANEL}" fill="none" stroke="#bbb"/>\n'
    )
    made += [_text(LEFT - 8, y(value) + 4, f"{value:g}", "end") for value in (low, (low + high) / 2, high)]
    if fair is not None:
        made.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(fair)}" y2="{y(fair)}" stroke="#bbb" stroke-dasharray="4 4"/>\n'
        )
    for colour, points in zip(_colours(len(lines)), lines, strict=True):
        joined = " ".join(f"{x(point.span)},{y(point.value)}" for point in points)
        made.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>\n')
        made += [f'<circle cx="{x(at)}" cy="{y(value)}" r="3" fill="{colour}"/>\n' for at, value in points]
    return "".join(made)


def _legend(judges: Sequence[str]) -> str:
    made = []
    for number, (judge, colour) in enumerate(zip(judges, _colours(len(judges)), strict=True)):
        top, left = TOP + 20 * number, WIDTH - RIGHT + 16
        made.append(f'<rect x="{left}" y="{top}" width="12" height="12" fill="{colour}"/>\n')
        made.append(_text(left + 18, top + 10, line(judge, 28)))
    return "".join(made)


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>\n'
