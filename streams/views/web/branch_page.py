"""A branch: its transcript turn by turn, verdicts, files, tokens; and the messages that the model saw before a turn."""

from collections.abc import Iterator

from schemas.branches import BranchRecord
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.log.terminal_text import WHOLE, line, several
from streams.views.web.links import TURNS, Links
from streams.views.web.markup import NOTHING, Content, Markup, join, tag
from streams.views.web.page_frame import block, cards, link, outcome, pages, pretty, section, table, time
from streams.views.web.reason_words import reason_words
from streams.views.web.rounds_part import rounds_part
from streams.views.web.sight import Sight, pair_name
from streams.views.web.signals import CLASSES, flag_words
from streams.views.web.strands import Strand
from streams.views.web.trained import Trained
from streams.views.web.turns import ShownCall, Turn, Words

STRIP = 400
"""Turns up to which all of them are shown as small marks."""

CALLS = 100
"""Calls of a turn that are shown; its data has all."""

SEEN = 300
"""Messages before a turn that are shown: the last ones."""

CHIPS = {"trained": "chip good", "rejected": "chip bad", "not": "chip"}
"""The colour of the chip, by the first word about a turn and its rows."""

HOW_KNOWN = {
    "exact": "Exact: every request to the model is on record.",
    "transcript": "Transcript: the conversation in its order; each turn is taken to have seen everything before it.",
    "reconstructed": "Reconstructed from the agent's steps.",
}


def branch_page(sight: Sight, strand: Strand, links: Links, first: int = 0, *, prefix: str = "") -> Markup:
    """The content of the page. `prefix` makes the anchors unique where several branches are in one file."""
    turns = strand.transcript.turns
    size = len(turns) if links.is_file else TURNS
    shown = turns[first : first + size]
    trained = Trained(sight, strand.branch)
    return join(
        _title(sight, strand),
        _facts(sight, strand, links),
        _signals(sight, strand, links, prefix),
        _verdicts(strand),
        _screenshot(sight, strand, links),
        _files(sight, strand, links),
        rounds_part(sight, strand, prefix),
        section(
            "Transcript",
            _strip(sight, strand, links),
            tag(
                "ol",
                *(_turn(sight, strand, turn, links, trained, prefix) for turn in shown),
                class_="turns",
                start=first,
            )
            if shown
            else tag("p", "No events yet.", class_="empty"),
            _pages(sight, strand, links, first, size),
            note=f"{HOW_KNOWN[strand.transcript.fidelity]} {trained.told} Times are those of its agent's clock.",
            id_=f"{prefix}transcript",
        ),
        _rows(sight, strand, links),
    )


def _title(sight: Sight, strand: Strand) -> Markup:
    return tag(
        "div",
        tag("h1", f"Branch {strand.branch}"),
        outcome(strand.objective),
        tag("span", f"of {sight.rollout_id}", class_="note"),
        class_="title",
    )


def _facts(sight: Sight, strand: Strand, links: Links) -> Markup:
    standing, ranked = strand.standing, strand.ranked
    record = sight.account.branches.get(strand.branch)
    indexes = [each.branch for each in sight.strands]
    at = indexes.index(strand.branch)
    near = [
        link(f"{name} {indexes[place]}", links.branch(sight.rollout_id, indexes[place]))
        for name, place in (("← branch", at - 1), ("→ branch", at + 1))
        if 0 <= place < len(indexes)
    ]
    best = next((each.branch for each in sight.strands if each.branch != strand.branch), None)
    if best is not None:
        near.append(link(f"compare with {best}", links.pair(sight.rollout_id, strand.branch, best)))
    rank = (
        None
        if ranked is None
        else "no rank"
        if ranked.rank is None
        else f"{ranked.rank} of {sum(each.ranked is not None and each.ranked.rank is not None for each in sight.strands)}"
    )
    tried = f", attempt {standing.attempt} of {standing.attempts}" if standing.attempts > 1 else ""
    turns = several(len(strand.transcript.turns), "turn")
    gaps = f", {standing.gaps} missing" if standing.gaps else ""
    calls = sum(len(turn.calls) for turn in strand.transcript.turns)
    return cards(
        [
            ("beside", [join(" · " if number else None, each) for number, each in enumerate(near)] if near else None),
            ("rank", rank),
            ("ended", (standing.ended or "still running").replace("_", " ") + tried),
            ("events", f"{standing.events:,} in {turns}, {several(calls, 'call')}{gaps}"),
            *(_recorded(record, exact=strand.transcript.fidelity == "exact") if record is not None else ()),
        ],
        wide=("workspace",),
    )  # fmt: skip


def _recorded(record: BranchRecord, *, exact: bool) -> Iterator[tuple[str, Content]]:
    agent, usage = record.agent, record.usage
    if agent is not None:
        yield "agent", line(" ".join(part for part in (agent.name, agent.model, agent.version) if part), WHOLE)
    if record.temperature is not None:
        yield "temperature", f"{record.temperature:g}"
    if usage is not None:
        parts = ((usage.input_tokens, "in"), (usage.cached_tokens, "cached"), (usage.output_tokens, "out"))
        yield (
            "tokens",
            ", ".join(f"{count:,} {name}" for count, name in parts if count is not None)
            + ("" if usage.usd is None else f", ${usage.usd:.4f}"),
        )
    if record.first_event_ms is not None and record.last_event_ms is not None:
        yield "took", f"{(record.last_event_ms - record.first_event_ms) / 1000:,.1f} s"
    if record.observed != "unknown" and not exact:
        yield "model saw", "outputs as summaries" if record.observed == "summarized" else "whole outputs"
    if record.workspace is not None:
        yield "workspace", tag("code", record.workspace.uri)
    if record.redactions:
        yield "redacted", ", ".join(f"{kind} {count}" for kind, count in record.redactions.items())


def _signals(sight: Sight, strand: Strand, links: Links, prefix: str) -> Markup:
    if not strand.signals:
        so_far = "" if sight.account.rollout.settled is not None else " so far"
        told = f"No sign of a hack is on record{so_far}. {strand.looks.words}."
        return tag("p", told, class_="note unflagged", id=f"{prefix}signals")
    items = [
        tag(
            "li",
            f"{signal.words} · ",
            tag("span", CLASSES[signal.sure], class_=f"sure {signal.sure}"),
            [" · ", link(f"turn {signal.turn}", links.branch(sight.rollout_id, strand.branch, signal.turn))]
            if signal.turn is not None
            else None,
            tag(
                "div", " · ".join(part for part in (signal.place, signal.evidence, signal.rule) if part), class_="note"
            ),
        )
        for signal in strand.signals
    ]
    return tag("aside", tag("h2", "Hack signals"), tag("ul", *items), class_="signals", id=f"{prefix}signals")


def _verdicts(strand: Strand) -> Markup:
    if not strand.verdicts:
        return NOTHING
    rows = [
        (
            each.kind,
            outcome(each.meaning.outcome),
            each.detail,
            each.produced_by,
            time(each.at),
            ", ".join(map(flag_words, each.meaning.flags)),
        )
        for each in strand.verdicts
    ]
    return section("Verdicts", table(("verdict", "means", "what was seen", "by", "at", "flags"), rows))


def _screenshot(sight: Sight, strand: Strand, links: Links) -> Markup:
    """The page that the branch made, as the visual verifier saw it."""
    digest = next((each.screenshot for each in strand.verdicts if each.screenshot), None)
    if digest is None:
        return NOTHING
    address = links.screenshot(sight.rollout_id, strand.branch, digest)
    if address is None:
        told = tag("p", "The picture is not kept here; its SHA-256 is ", tag("code", digest), ".", class_="note")
        return section("Screenshot", told)
    said = f"What the page of branch {strand.branch} looks like"
    picture = tag("img", src=address, alt=said, width="1280", height="800", loading="lazy")
    caption = tag("figcaption", "Taken by the visual verifier. SHA-256 ", tag("code", digest), class_="note")
    return section(
        "Screenshot", tag("figure", link(picture, None if links.is_file else address), caption, class_="shot")
    )


def _files(sight: Sight, strand: Strand, links: Links) -> Markup:
    files = strand.transcript.files
    if not files:
        return NOTHING
    rows = [
        (
            tag("code", path),
            [
                join(", " if number else None, link(turn, links.branch(sight.rollout_id, strand.branch, turn)))
                for number, turn in enumerate(turns)
            ],
        )
        for path, turns in sorted(files.items())[:200]
    ]
    return section(
        "Files",
        table(("path", "changed in turn"), rows),
        note="As the calls say.",
        id_="files" if not links.is_file else None,
    )


def _rows(sight: Sight, strand: Strand, links: Links) -> Markup:
    rows = sight.rows_of(strand.branch)
    left = [row for row in sight.account.rejected if strand.branch in row.branches and len(row.branches) <= 2]
    if not rows and not left:
        return NOTHING
    made = [
        tag(
            "li",
            link(f"{type(row).__name__.removesuffix('Record').upper()}", links.rows(sight.rollout_id, row.record_id)),
            " ",
            tag("span", pair_name(row) if isinstance(row, DpoRecord) else _nth(row), class_="note"),
        )
        for row in rows
    ]
    out = [
        tag("li", f"{row.kind.upper()}{_beside(row, strand.branch)}: {'; '.join(reason_words(row.reasons))}")
        for row in left[:40]
    ]
    return section(
        "Rows of it",
        tag("ul", *made) if made else None,
        tag("h3", "Left out") if out else None,
        tag("ul", *out) if out else None,
    )


def _nth(row: SftRecord | PpoRecord) -> str:
    """The number of the conversation that a row is, if its branch has several."""
    if row.sequence is None or row.n_sequences in (None, 1):
        return "" if row.agent is None else line(row.agent)
    return f"conversation {row.sequence + 1} of {row.n_sequences}" + (f", {line(row.agent)}" if row.agent else "")


def _beside(row: RejectedRecord, branch: int) -> str:
    """The other branch of a rejected pair."""
    others = [index for index in row.branches if index != branch]
    return f" with {others[0]}" if others else " of its rounds" if row.kind == "dpo" else ""


def _strip(sight: Sight, strand: Strand, links: Links) -> Markup:
    """All turns as small marks that lead to them."""
    turns = strand.transcript.turns
    if len(turns) < 3 or len(turns) > STRIP:
        return NOTHING
    flagged = {signal.turn for signal in strand.signals}
    marks = [
        link(
            turn.number,
            links.branch(sight.rollout_id, strand.branch, turn.number),
            class_=" ".join(name for name, holds in (
                ("signal", turn.number in flagged), ("bad", turn.failures > 0), ("answer", turn.ending is not None),
                ("quiet", not turn.calls),
            ) if holds) or None,
            title=_told(turn),
        )
        for turn in turns
    ]  # fmt: skip
    return tag("nav", *marks, class_="strip", aria_label="Turns")


def _told(turn: Turn) -> str:
    said = turn.ending.kind if turn.ending is not None else turn.tools[:200] or "words only"
    return f"turn {turn.number}: {said}" + (f", {turn.failures} failed" if turn.failures else "")


def _pages(sight: Sight, strand: Strand, links: Links, first: int, size: int) -> Markup:
    total = len(strand.transcript.turns)
    if total <= size and not first:
        return NOTHING
    before = links.branch(sight.rollout_id, strand.branch, first=max(0, first - size) or None) if first else None
    behind = links.branch(sight.rollout_id, strand.branch, first=first + size) if first + size < total else None
    return pages(total, first, size, (before, behind))


# -- turns -------------------------------------------------------------------------------------------------------------------------


def _turn(sight: Sight, strand: Strand, turn: Turn, links: Links, trained: Trained, prefix: str) -> Markup:
    name = f"{prefix}turn-{turn.number}"
    tokens = ", ".join(
        f"{count:,} {side}"
        for count, side in ((turn.input_tokens, "in"), (turn.output_tokens, "out"))
        if count is not None
    )
    said = [each for each in (turn.model, turn.agent, f"{tokens} tokens" if tokens else None) if each]
    saw = links.turn(sight.rollout_id, strand.branch, turn.number)
    rows = trained.rows(turn)
    return tag(
        "li",
        tag(
            "div",
            tag("a", f"turn {turn.number}", href=f"#{name}", class_="number"),
            tag("span", " · ".join(said), class_="note"),
            tag("span", time(turn.at), class_="note") if turn.at else None,
            tag("span", rows, class_=CHIPS[rows.partition(" ")[0]]) if rows else None,
            link("what it saw", saw, class_="saw") if saw else None,
            class_="bar",
        ),
        *(tag("p", note, class_="rewritten") for note in turn.notes),
        *(_words(words) for words in turn.given),
        _reasoning(turn.reasoning) if turn.reasoning else None,
        tag("div", block(turn.text, fold=False), class_="said") if turn.text else None,
        *(_call(sight, strand, turn, number, call, links, trained) for number, call in enumerate(turn.calls[:CALLS])),
        tag("p", f"and {len(turn.calls) - CALLS:,} more calls", class_="note") if len(turn.calls) > CALLS else None,
        _words(turn.ending) if turn.ending else None,
        id=name,
        class_="turn",
    )  # fmt: skip


def _reasoning(text: str) -> Markup:
    return tag(
        "details", tag("summary", f"reasoning ({len(text):,} characters)"), block(text, fold=False), class_="reasoning"
    )


def _words(words: Words) -> Markup:
    kind = words.kind.partition(" ")[0]
    return tag(
        "div",
        tag("span", words.kind, class_="who"),
        block(words.text, fold=kind not in ("answer", "error")),
        class_=f"words {kind}",
    )


def _call(
    sight: Sight, strand: Strand, turn: Turn, number: int, call: ShownCall, links: Links, trained: Trained
) -> Markup:
    more = links.output(sight.rollout_id, strand.branch, turn.number, number)
    took = (
        f"{(call.ended - call.started) / 1000:.1f} s"
        if call.started is not None and call.ended is not None and call.ended >= call.started
        else ""
    )
    size = f"{call.output_bytes:,} bytes" if call.output_bytes else ""
    facts_ = [each for each in (took, size, None if call.paired else "no call asked for it") if each]
    result: list[Content] = []
    if call.error is not None:
        code = f"{call.code}: " if call.code else ""
        whole = more if call.output in (None, call.error) else None
        result.append(tag("div", block(f"{code}{call.error}", whole), class_="failed"))
    if call.output is not None and call.output != call.error:
        result.append(block(call.output, more))
        result.append(_as_trained(trained, turn, number, call))
    elif not call.returned:
        result.append(tag("p", "no result came", class_="note"))
    arguments = pretty(call.arguments)
    return tag(
        "div",
        tag("div", tag("span", call.name, class_="tool"), tag("span", " · ".join(facts_), class_="note"), class_="bar"),
        tag("div", block(arguments, label="arguments"), class_="arguments") if arguments else None,
        tag("div", *result, class_="result"),
        class_="call bad" if call.failed else "call",
    )


def _as_trained(trained: Trained, turn: Turn, number: int, call: ShownCall) -> Markup:
    """The output in the rows, if it differs from the one that is shown."""
    if not trained.differs(turn, call):
        return NOTHING
    other = trained.output(turn, number)
    if other is None:
        return tag("p", "Rows have it in another form.", class_="note")
    summary = tag("summary", "as the rows have it ", tag("span", f"{len(other):,} characters", class_="note"))
    return tag("details", summary, block(other, fold=False), class_="as-trained")


# -- what the model saw --------------------------------------------------------------------------------------------------------------


def _asked(call: str) -> str:
    """A call for reading: its name, and its arguments one below the other."""
    name, _, arguments = call.partition(" ")
    shown = pretty(arguments)
    return f"{name} {shown}" if "\n" not in shown else f"{name}\n{shown}"


def turn_page(sight: Sight, strand: Strand, number: int, links: Links) -> Markup:
    """The messages that the model was given before a turn, and its response."""
    transcript = strand.transcript
    seen = transcript.seen(number)
    turns = len(transcript.turns)
    exact = transcript.fidelity == "exact"
    how = (
        "These messages were sent."
        if exact
        else "No request is on record: this is everything that stands before the turn."
    )
    items = [
        tag(
            "li",
            tag("span", each.role, class_="who"),
            block(each.text) if each.text else None,
            *(tag("pre", _asked(call), class_="arguments") for call in each.calls),
            class_=f"words {each.role.partition(' ')[0]}",
        )
        for each in seen[-SEEN:]
    ]
    if len(seen) > SEEN:
        how += f" The last {SEEN} are shown; the data of this page has all."
    before = links.turn(sight.rollout_id, strand.branch, number - 1) if number else None
    behind = links.turn(sight.rollout_id, strand.branch, number + 1) if number + 1 < turns else None
    return join(
        tag(
            "div",
            tag("h1", f"Before turn {number}"),
            tag("span", f"branch {strand.branch} of {sight.rollout_id}", class_="note"),
            class_="title",
        ),
        tag(
            "p",
            link("← turn before", before, rel="prev") if before else None,
            "  ",
            link("turn after →", behind, rel="next") if behind else None,
            class_="pages",
        ),
        section(
            f"What the model saw ({several(len(seen), 'message')})",
            tag("ol", *items, class_="seen", id="seen"),
            note=how,
        ),
        section(
            "What it then did",
            tag(
                "ol",
                _turn(sight, strand, transcript.turns[number], links, Trained(sight, strand.branch), ""),
                class_="turns",
            ),
        ),
        tag(
            "p",
            link(
                "Back to the transcript",
                links.branch(sight.rollout_id, strand.branch, number, first=number // TURNS * TURNS or None),
            ),
            class_="more",
        ),
    )
