"""The braid: N strands from one fork point along the turns, together as long as they do the same, drawn as SVG.

The lanes are in the order of the ranking. Branches that are identical so far share one line, on the lane of one of
them, so lines of different stories never overlap. A diamond marks a place where a line divides. Marks of a line are one
path each, so that 64 branches of 150 turns stay small.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from streams.log.terminal_text import number
from streams.views.bars import interval
from streams.views.web.links import Links
from streams.views.web.markup import Content, Markup, join, tag
from streams.views.web.strands import Strand
from streams.views.web.turns import Turn

LEFT = 26
TOP = 40
FAN = 54
"""Between the fork point and the first turn."""
ALONE = 240
"""The same if there is one turn only."""
AXIS = 640
"""Width of all turns, if they are few enough."""
STEPS = (7, 320)
"""Least and greatest distance of two turns."""
PARTING = (12, 60)
"""Least and greatest room for lines that part, between two turns."""
MANY = 24
"""With more lanes than this, lines are drawn thinner."""
TIER_GAP = 14
COLUMNS = {"branch": 62, "bead": 82, "outcome": 136, "rank": 242, "bar": 288, "total": 442}
"""Positions of the columns, from the end of the axis."""
RIGHT = 456
UNRANKED = 236
"""Room for the columns; of a rollout without a ranking."""
BAR = 110
"""Width of the score intervals."""


class Zoom(NamedTuple):
    """The options of the drawing."""

    scale: int = 1
    """1, 2 or 4: the distance of turns."""
    folded: frozenset[str] = frozenset()
    """Tiers that are not drawn."""
    first: int = 0
    """The first strand of a very large rollout."""


PAGE = 128
"""Strands that are drawn at once."""

SCALES = (1, 2, 4)


class _Group(NamedTuple):
    """Strands that are one line for some turns."""

    members: tuple[int, ...]
    """Their places among the strands that are drawn."""
    first: int
    """Its first turn."""
    end: int
    """The turn after its last."""
    lane: int
    parts: tuple["_Group", ...]
    """The lines that it parts into."""


def braid(strands: Sequence[Strand], rollout_id: str, links: Links, zoom: Zoom) -> Markup:
    """The whole picture."""
    drawn = [strand for strand in strands if strand.objective not in zoom.folded][zoom.first : zoom.first + PAGE]
    if not drawn:
        return tag("p", "No branch to draw.", class_="muted")
    turns = max((len(strand.transcript.turns) for strand in drawn), default=0)
    height = 34 if len(drawn) <= 12 else 25 if len(drawn) <= MANY else 17
    lanes = tuple(_lanes(drawn, height))
    root = tuple(_groups(drawn, range(len(drawn)), 0))
    ranked = any(strand.ranked is not None for strand in drawn)
    right = RIGHT if ranked else UNRANKED
    places = tuple(_places(root, lanes, max(1, turns), zoom.scale, AXIS + RIGHT - right))
    frame = _Frame(rollout_id, links, places, lanes, height, dict(_alone(root)), right)
    width, bottom = frame.end + right, lanes[-1] + height / 2 + 12
    middle = lanes[root[0].lane] if len(root) == 1 else (lanes[0] + lanes[-1]) / 2
    return tag(
        "svg",
        tag("title", f"{len(drawn)} branches of {rollout_id}, best first, {turns} turns"),
        join(*_axis(frame, bottom), *_heads(frame.end, ranked=ranked)),
        tag("g", *(_row(frame, place, strand, drawn) for place, strand in enumerate(drawn)), class_="lanes"),
        tag("g", *_lines(frame, root, drawn, (LEFT, middle)), class_="strands fine" if len(drawn) > MANY else "strands"),
        tag("circle", tag("title", "the fork point: all branches begin here"), cx=LEFT, cy=_c(middle), r=5, class_="fork"),
        class_="braid" if zoom.scale == 1 else "braid zoomed",
        width=_c(width), height=_c(bottom), viewBox=f"0 0 {_c(width)} {_c(bottom)}", role="group",
        aria_label=f"The braid of {rollout_id}", data_places=" ".join(map(_c, places)),
    )  # fmt: skip


class _Frame(NamedTuple):
    """The measures of a picture."""

    rollout_id: str
    links: Links
    places: tuple[float, ...]
    """Positions of the turns, along the axis."""
    lanes: tuple[float, ...]
    height: int
    alone: Mapping[int, int]
    """By index of a strand, the first turn that it shares with no other."""
    right: int
    """Width of the columns."""

    @property
    def end(self) -> float:
        """The end of the axis."""
        return self.places[-1]

    def x(self, turn: int) -> float:
        """The place of a turn."""
        return self.places[min(turn, len(self.places) - 1)]


def _places(root: Sequence[_Group], lanes: Sequence[float], turns: int, scale: int, axis: float) -> Iterator[float]:
    """The positions of turns: evenly spaced, with more room where lines divide, the more the further they spread."""
    room: dict[int, float] = {}
    stack = list(root)
    while stack:
        group = stack.pop()
        stack += group.parts
        if own := [part for part in group.parts if part.end > part.first]:
            spread = max(abs(lanes[part.lane] - lanes[group.lane]) for part in own)
            room[group.end] = max(room.get(group.end, 0.0), min(PARTING[1], PARTING[0] + spread / 10))
    step = min(STEPS[1], max(STEPS[0], (axis - sum(room.values())) / max(1, turns - 1))) * scale
    at = float(LEFT + (FAN if turns > 1 else ALONE))
    for turn in range(turns):
        at += (step if turn else 0.0) + room.get(turn, 0.0) * (step < PARTING[1])
        yield at


def _alone(root: Sequence[_Group]) -> Iterator[tuple[int, int]]:
    stack = list(root)
    while stack:
        group = stack.pop()
        stack += group.parts
        if len(group.members) == 1:
            yield group.members[0], group.first


def _lanes(strands: Sequence[Strand], height: int) -> Iterator[float]:
    at = TOP + height / 2
    for place, strand in enumerate(strands):
        if place and strand.objective != strands[place - 1].objective:
            at += TIER_GAP
        yield at
        at += height


# -- lines that part ---------------------------------------------------------------------------------------------------------


def _groups(strands: Sequence[Strand], members: Sequence[int], turn: int) -> Iterator[_Group]:
    """The lines of some strands that were one up to a turn."""
    alike: dict[bytes | int, list[int]] = {}
    for place in members:
        turns = strands[place].transcript.turns
        alike.setdefault(turns[turn].saw if turn < len(turns) else -place - 1, []).append(place)
    for together in alike.values():
        yield _group(strands, tuple(together), turn)


def _group(strands: Sequence[Strand], members: tuple[int, ...], first: int) -> _Group:
    turns = [strands[place].transcript.turns for place in members]
    if len(members) == 1:
        return _Group(members, first, len(turns[0]), members[0], ())
    end, shortest = first + 1, min(len(each) for each in turns)
    while end < shortest and len({each[end].saw for each in turns}) == 1:
        end += 1
    parts = tuple(_groups(strands, members, end))
    return _Group(members, first, end, members[len(members) // 2], parts)


def _lines(
    frame: _Frame, groups: Sequence[_Group], strands: Sequence[Strand], origin: tuple[float, float]
) -> Iterator[Markup]:
    """The lines of groups that begin at one point, and of the groups into which they divide."""
    stack = [(group, origin) for group in groups]
    partings: list[Markup] = []
    while stack:
        group, (x, y) = stack.pop()
        lane, first = frame.lanes[group.lane], frame.x(group.first)
        last = max(first, frame.x(max(group.first, group.end - 1)))
        tones = {strands[place].objective for place in group.members}
        tone = tones.pop() if len(tones) == 1 else "mixed"
        if 0 < group.first >= group.end:  # the same as its siblings to its end: it has nothing of its own to draw
            told = tag("title", f"branch {strands[group.lane].branch} is the same to its end")
            yield tag(
                "g",
                tag("path", told, d=f"M{_c(x)} {_c(y)}V{_c(lane)}", class_="alike"),
                class_="line", data_of=strands[group.lane].branch, data_end=group.end,
            )  # fmt: skip
            continue
        half = (first - x) / 2
        weight = "many" if len(group.members) > 1 else "one"
        bend = f"M{_c(x)} {_c(y)}C{_c(x + half)} {_c(y)} {_c(x + half)} {_c(lane)} {_c(first)} {_c(lane)}"
        along = f"M{_c(first)} {_c(lane)}H{_c(last)}"
        yield tag(
            "g",
            tag("path", d=bend, class_=f"strand bend {tone} {weight}"),
            tag("path", d=along, class_=f"strand {tone} {weight}") if last > first else None,
            *_marks(frame, group, strands[group.lane], lane),
            *_signals(frame, group, strands, lane),
            class_="line",
            data_of=" ".join(str(strands[place].branch) for place in group.members),
            data_end=group.end,
        )
        if any(part.end > part.first for part in group.parts):
            names = " | ".join(", ".join(str(strands[place].branch) for place in part.members) for part in group.parts)
            said = f"branches part at turn {group.end}: {names}"
            partings.append(
                tag("path", tag("title", said), d=f"M{_c(last)} {_c(lane - 5)}l5 5l-5 5l-5-5z", class_="parting")
            )
        stack += [(part, (last, lane)) for part in group.parts]
    yield from partings


def _marks(frame: _Frame, group: _Group, strand: Strand, lane: float) -> Iterator[Markup]:
    """The marks of a line's turns, one path for each kind: a point is a line of no length with round ends.

    They differ in shape: one point, two points one above the other, a stroke, a cross, a double bar, a square.
    """
    turns = strand.transcript.turns[group.first : group.end]
    kinds: dict[str, list[str]] = {
        "call": [],
        "calls": [],
        "said": [],
        "error": [],
        "rewritten": [],
        "answer": [],
        "failed": [],
    }
    for turn in turns:
        x = _c(frame.x(turn.number))
        at = f"M{x} {_c(lane)}"
        if turn.is_rewritten:
            kinds["rewritten"].append(f"M{_c(frame.x(turn.number) - 5)} {_c(lane - 6)}v12m3-12v12")
        if _answers(strand, turn):
            kinds["answer"].append(f"{at}h0")
        elif turn.ending is not None:
            kinds["failed" if turn.ending.kind == "error" else "answer"].append(f"{at}h0")
        elif turn.failures:
            kinds["error"].append(f"M{_c(frame.x(turn.number) - 3)} {_c(lane - 3)}l6 6m0-6l-6 6")
        else:
            kind = "said" if not turn.calls else "call" if len(turn.calls) == 1 else "calls"
            shapes = {"call": f"{at}h0", "calls": f"M{x} {_c(lane - 3.5)}h0m0 7h0", "said": f"M{x} {_c(lane - 4)}v8"}
            kinds[kind].append(shapes[kind])
    yield from (tag("path", d="".join(found), class_=f"mark {kind}") for kind, found in kinds.items() if found)


def _signals(frame: _Frame, group: _Group, strands: Sequence[Strand], lane: float) -> Iterator[Markup]:
    """A triangle above each turn that a signal is about; one for all signals of a turn."""
    found: dict[int, list[str]] = {}
    proved: set[int] = set()
    for place in group.members:
        branch = strands[place].branch
        for signal in strands[place].signals:
            if signal.turn is not None and group.first <= signal.turn < group.end:
                told = f"branch {branch}, turn {signal.turn}: {signal.words} ({signal.rule}, {signal.sure})"
                found.setdefault(signal.turn, []).append(told)
                proved |= {signal.turn} if signal.sure == "confirmed" else set()
    for turn, signs in sorted(found.items()):
        x, kind = frame.x(turn), "mark signal" if turn in proved else "mark signal hollow"
        yield tag("path", tag("title", "; ".join(signs)), d=f"M{_c(x)} {_c(lane - 14)}l5 8h-10z", class_=kind)


# -- the columns beside ----------------------------------------------------------------------------------------------------------


def _axis(frame: _Frame, bottom: float) -> Iterator[Markup]:
    turns = len(frame.places)
    step = (frame.end - frame.places[0]) / max(1, turns - 1)
    every = next((each for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if each * step >= 30), 5000)
    yield tag("text", "turn", x=LEFT - 6, y=16, class_="head")
    for turn in range(0, turns, every):
        yield tag("text", turn, x=_c(frame.x(turn)), y=16, class_="tick")
        yield tag("path", d=f"M{_c(frame.x(turn))} 24V{_c(bottom - 6)}", class_="grid")


def _heads(end: float, *, ranked: bool) -> Iterator[Markup]:
    for name, label, side in (
        ("branch", "branch", "end"), ("bead", "verdicts", "start"), ("outcome", "outcome", "start"), ("rank", "rank", "end"),
        ("bar", "score ± 95 %", "start"), ("total", "total", "end"),
    ):  # fmt: skip
        if ranked or name in ("bead", "branch", "outcome"):
            yield tag("text", label, x=_c(end + COLUMNS[name] - 5 * (name == "bead")), y=16, class_=f"head {side}")


def _row(frame: _Frame, place: int, strand: Strand, strands: Sequence[Strand]) -> Markup:
    """A lane: its guide, its beads, and its numbers, as a link to the branch."""
    lane, end = frame.lanes[place], frame.end
    turns = len(strand.transcript.turns)
    ranked = strand.ranked
    tools = "|".join(_told(strand, number) for number in range(turns))
    last = frame.x(max(0, turns - 1))
    beads = [
        tag("circle", tag("title", f"{each.kind}: {each.meaning.outcome} ({each.detail})"), cx=_c(end + COLUMNS["bead"] + at * 11),
            cy=_c(lane), r=4, class_=f"bead {each.meaning.outcome}")
        for at, each in enumerate(strand.verdicts[:4])
    ]  # fmt: skip
    sure = (
        ""
        if ranked is None or ranked.rank_low is None or ranked.rank_low == ranked.rank_high
        else f"{ranked.rank_low}–{ranked.rank_high}"
    )
    cells: list[Content] = [
        *beads,
        _cell(
            end + COLUMNS["rank"],
            lane,
            "" if ranked is None else "–" if ranked.rank is None else ranked.rank,
            "end strong",
        ),
        _cell(end + COLUMNS["rank"] + 5, lane, sure, "start faint"),
        _cell(end + COLUMNS["branch"], lane, strand.branch, "end link"),
        _cell(end + COLUMNS["outcome"], lane, _fate(strand), f"start {strand.objective}"),
        _score(frame, place, strand, strands),
        _cell(end + COLUMNS["total"], lane, "" if ranked is None else number(ranked.total), "end"),
    ]
    if strand.signals:
        kind = "mark signal" if any(each.sure == "confirmed" for each in strand.signals) else "mark signal hollow"
        told = "; ".join(f"{signal.words} ({signal.sure})" for signal in strand.signals)
        x = end + COLUMNS["outcome"] + max(40.0, 8 + 6.4 * len(_fate(strand)))
        cells.append(tag("path", tag("title", told), d=f"M{_c(x)} {_c(lane - 5)}l5.5 9h-11z", class_=kind))
    label = (
        f"branch {strand.branch}: {strand.objective.replace('_', ' ')}, {turns} turns, {strand.standing.calls} calls"
    )
    # In a narrow window the columns are not visible, so each line has its branch where it first runs alone.
    alone = frame.x(frame.alone.get(place, 0))
    cells.append(tag("text", strand.branch, x=_c(alone + 4), y=_c(lane - 4), class_="beside"))
    guide = tag("path", d=f"M{_c(last + 6)} {_c(lane)}H{_c(end + 6)}", class_="guide") if end > last + 6 else None
    area = tag(
        "rect",
        x=_c(end + 6),
        y=_c(lane - frame.height / 2),
        width=frame.right - 8,
        height=frame.height,
        rx=4,
        class_="area",
    )
    href = frame.links.branch(frame.rollout_id, strand.branch)
    body = join(guide, area, *cells)
    return tag(
        "g", body if href is None else tag("a", body, href=href, aria_label=label), class_="lane", data_branch=strand.branch,
        data_y=_c(lane), data_turns=tools, data_href=href,
    )  # fmt: skip


def _fate(strand: Strand) -> str:
    """The outcome, or that there is none yet."""
    if strand.ranked is None and strand.objective == "unknown":
        return "running" if strand.standing.ended is None else "no verdict yet" if not strand.verdicts else "unknown"
    return strand.objective.replace("_", " ")


def _answers(strand: Strand, turn: Turn) -> bool:
    """Whether a turn is the answer although no event marks it: the last words of a conversation that ended with an
    answer.
    """
    is_last = turn.number == len(strand.transcript.turns) - 1
    return (
        is_last and not turn.calls and turn.ending is None and bool(turn.text) and strand.standing.ended == "answered"
    )


def _told(strand: Strand, place: int) -> str:
    """A turn in a few words."""
    turn = strand.transcript.turns[place]
    if _answers(strand, turn):
        return "answer"
    if turn.ending is not None:
        return turn.ending.kind
    said = turn.tools[:60].replace("|", "/") or "words only"
    failed = f" ({turn.failures} failed)" if turn.failures else ""
    return said + failed


def _score(frame: _Frame, place: int, strand: Strand, strands: Sequence[Strand]) -> Content:
    """The score with its interval, on the scale of its tier: scores compare within one only."""
    ranked = strand.ranked
    if ranked is None or ranked.bt_score is None or ranked.se is None:
        return None
    tier = [each.ranked for each in strands if each.ranked is not None and each.objective == strand.objective]
    spans = [found for each in tier if (found := interval(each.bt_score, each.se)) is not None]
    low, high = min(span.low for span in spans), max(span.high for span in spans)
    wide = (high - low) or 1.0
    x = frame.end + COLUMNS["bar"]
    own = interval(ranked.bt_score, ranked.se)
    assert own is not None
    left, middle, right = (x + BAR * (value - low) / wide for value in (own.low, own.middle, own.high))
    lane = frame.lanes[place]
    told = f"score {ranked.bt_score:.2f} ± {1.96 * ranked.se:.2f}"
    return tag(
        "g",
        tag("title", told),
        tag("path", d=f"M{_c(left)} {_c(lane)}H{_c(right)}", class_="interval"),
        tag("circle", cx=_c(middle), cy=_c(lane), r=2.6, class_="point"),
    )


def _cell(x: float, y: float, content: Content, kind: str) -> Markup:
    return tag("text", content, x=_c(x), y=_c(y + 4), class_=kind)


def _c(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")
