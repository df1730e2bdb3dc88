"""`braid show --branch` and `--pair` for people: the transcript of a branch, and two branches from where they diverge."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from streams.log.terminal_text import listed, moment, several, visible
from streams.views.web.page_frame import pretty
from streams.views.web.pair_page import parting_words
from streams.views.web.sight import Sight, pair_name
from streams.views.web.strands import Strand, parting
from streams.views.web.turns import ShownCall, Turn, Words

LINES = 24
"""Lines of one text; --json has all of it."""

WIDE = 2000
"""Characters of one line."""


def branch_text(sight: Sight, strand: Strand) -> Iterator[RenderableType]:
    """A branch, turn by turn."""
    yield _heading(sight, strand)
    for verdict in strand.verdicts:
        yield Text(f"{verdict.kind}: {verdict.meaning.outcome} ({verdict.detail})")
    for signal in strand.signals:
        where = "" if signal.turn is None else f", turn {signal.turn}"
        told = "; ".join(part for part in (signal.place, signal.evidence) if part)
        yield Text(f"hack signal: {signal.words} ({signal.rule}, {signal.sure}{where}): {told}", style="yellow")
    if strand.transcript.files:
        said = [
            f"{visible(path)} (turn {listed([str(turn) for turn in turns], 4)})"
            for path, turns in strand.transcript.files.items()
        ]
        yield Text(f"files that its calls change: {listed(said)}")
    for turn in strand.transcript.turns:
        yield from _turn(turn)


def pair_text(sight: Sight, a: Strand, b: Strand) -> Iterator[RenderableType]:
    """Two branches, turn by turn, from where they diverge; of one branch, its rounds that are rows."""
    if a.branch == b.branch:
        yield from _repairs(sight, a)
        return
    apart, row = parting(a.transcript, b.transcript), sight.pair_row(a.branch, b.branch)
    yield Text(
        f"{visible(sight.rollout_id)}: branches {a.branch} ({a.objective}) and {b.branch} ({b.objective})", style="bold"
    )
    if row is not None:
        sure = "" if row.p_chosen is None else f", p {row.p_chosen:.3f}"
        yield Text(
            f"preference row: {row.chosen_branch} over {row.rejected_branch} ({row.basis}, margin {row.margin:.3f}{sure}), {row.record_id}"
        )
    else:
        yield from (Text(f"no preference row: {why}") for why in sight.why_no_pair(a.branch, b.branch))
    yield Text(parting_words(apart))
    first = 0 if apart is None else apart.turn
    for number in range(first, max(len(a.transcript.turns), len(b.transcript.turns)) if apart is not None else 0):
        for strand in (a, b):
            turns = strand.transcript.turns
            yield Text(f"\nbranch {strand.branch}", style="bold")
            if number < len(turns):
                yield from _turn(turns[number])
            else:
                yield Text("  ended before" if strand.standing.ended else "  has not come so far", style="dim")


def _repairs(sight: Sight, strand: Strand) -> Iterator[Text]:
    for row in sight.repairs(strand.branch):
        yield Text(
            f"{visible(sight.rollout_id)}: {pair_name(row)} ({row.basis}, margin {row.margin:.3f}), {row.record_id}",
            style="bold",
        )
        yield from _block(f"round {row.rejected_round}, rejected", row.rejected_answer or "", "red")
        yield from _block(f"round {row.chosen_round}, chosen", row.chosen_answer or "", "green")


def _heading(sight: Sight, strand: Strand) -> Text:
    ended = (strand.standing.ended or "still running").replace("_", " ")
    turns = several(len(strand.transcript.turns), "turn")
    rank = "" if strand.ranked is None or strand.ranked.rank is None else f", rank {strand.ranked.rank}"
    told = f"{visible(sight.rollout_id)} branch {strand.branch}: {strand.objective}, {ended}, {turns}{rank} ({strand.transcript.fidelity})"
    return Text(told, style="bold")


def _turn(turn: Turn) -> Iterator[Text]:
    tokens = [
        f"{count:,} {side}"
        for count, side in ((turn.input_tokens, "in"), (turn.output_tokens, "out"))
        if count is not None
    ]
    about = [
        f"turn {turn.number}",
        *([moment(turn.at)] if turn.at else []),
        *([turn.model] if turn.model else []),
        *tokens,
    ]
    yield Text("\n" + visible("  ".join(about)), style="cyan")
    for note in turn.notes:
        yield Text(f"  {visible(note)}", style="yellow")
    for words in turn.given:
        yield from _words(words)
    if turn.reasoning:
        yield from _block("reasoning", turn.reasoning, "dim")
    if turn.text:
        yield from _block("says", turn.text)
    for call in turn.calls:
        yield from _call(call)
    if turn.ending is not None:
        yield from _words(turn.ending)


def _words(words: Words) -> Iterator[Text]:
    yield from _block(words.kind, words.text, "red" if words.kind == "error" else "")


def _call(call: ShownCall) -> Iterator[Text]:
    yield from _block(f"calls {call.name}", pretty(call.arguments))
    if call.error is not None:
        yield from _block("failed", f"{call.code}: {call.error}" if call.code else call.error, "red")
    if call.output is not None:
        yield from _block(f"result, {call.output_bytes:,} bytes", call.output, "dim")
    elif not call.returned:
        yield Text("  no result came", style="dim")


def _block(name: str, text: str, style: str = "") -> Iterator[Text]:
    lines = text.split("\n")
    shown = [visible(each[:WIDE]) + (" …" if len(each) > WIDE else "") for each in lines[:LINES]]
    yield Text(f"  {visible(name)}:", style="bold" if not style else f"bold {style}")
    yield from (Text(f"    {each}", style=style) for each in shown)
    if len(lines) > LINES:
        yield Text(f"    ... and {len(lines) - LINES:,} more lines (--json has all)", style="dim")
