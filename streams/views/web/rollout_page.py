"""A rollout: the braid, why it waits, the ranking, the votes both ways, and the resulting rows."""

from collections.abc import Sequence

from agents.redaction.redaction import redact
from schemas.closures import RolloutClosed, RolloutSettled
from schemas.training import DpoRecord, PpoRecord, SftRecord
from streams.log.terminal_text import WHOLE, line, moment, number, several
from streams.views.bars import powered_sentence
from streams.views.page import task_of
from streams.views.web.braid_svg import PAGE, SCALES, Zoom, braid
from streams.views.web.left_out import groups_of, left_out
from streams.views.web.links import Links
from streams.views.web.markup import NOTHING, Content, Markup, join, tag
from streams.views.web.page_frame import block, cards, facts, link, outcome, section, state, table, time
from streams.views.web.sight import Sight, pair_name
from streams.views.web.signals import CLASSES, NOTHING_LOOKED, SURENESS, Signal, branch_list, flag_words
from streams.views.web.strands import Strand
from streams.views.web.votes_part import votes_part

PLAIN = Zoom()

TASK = 320
"""Characters of a task that are shown at once."""

TASK_LINES = 4
"""Lines of the task, few because the braid below is the main part of the page."""

FOLDED = 24
"""Branches from which the table of the ranking is folded: the braid above has the same order."""

SIGNALS = 8
"""Hack signals that are shown at once; further ones are folded."""

TIERS = ("pass", "not_required", "fail", "unknown")


def rollout_page(sight: Sight, links: Links, zoom: Zoom = PLAIN) -> Markup:
    """The content of the page."""
    if not sight.strands:
        nothing = tag("p", "No branch has been heard of yet.", class_="empty")
        return join(_title(sight), _head(sight), section("The braid", nothing, id_="braid"), _letters(sight, links))
    return join(
        _title(sight),
        _head(sight),
        _jumps(sight, links),
        _signals(sight, links),
        section("The braid", _controls(sight, links, zoom), _drawn(sight, links, zoom), _legend(), id_="braid"),
        _ranking(sight, links),
        votes_part(sight),
        _came_of_it(sight, links),
        _letters(sight, links),
    )


def _title(sight: Sight) -> Markup:
    return tag("div", tag("h1", sight.rollout_id), state(sight.status), class_="title")


def _head(sight: Sight) -> Markup:
    account, rollout = sight.account, sight.account.rollout
    counts: dict[str, int] = {}
    for strand in sight.strands:
        counts[strand.objective] = counts.get(strand.objective, 0) + 1
    expected = rollout.opened.branches if rollout.opened is not None else None
    branches = several(len(sight.strands), "branch", "branches") + (
        f" of {expected}" if expected not in (None, len(sight.strands)) else ""
    )
    events = sum(strand.standing.events for strand in sight.strands)
    labels = rollout.opened.labels if rollout.opened is not None else {}
    return tag(
        "div",
        _task(redact(task_of(account)).text.strip()),
        tag(
            "p",
            *(tag("span", line(f"{name}={text}", WHOLE), class_="chip") for name, text in labels.items()),
            class_="labels",
        )
        if labels
        else None,
        cards(
            [
                (
                    "outcomes",
                    [
                        tag("span", outcome(name), f" {counts[name]}", class_="count-of")
                        for name in TIERS
                        if name in counts
                    ]
                    or "none yet",
                ),
                ("branches", f"{branches}, {several(events, 'event')}"),
                ("required", ", ".join(sight.required) or "nothing"),
                ("on the log since", _began(sight)),
                ("settled: outcomes are final", _decided(rollout.settled)),
                ("closed: rows are made", _decided(rollout.closed)),
            ],
        ),
        _waiting(sight),
        class_="lead",
    )


WHY = {
    "open": "Why it is still open",
    "settled": "Why it has not closed yet",
    "closing": "Why nothing has come of it yet",
    "broken": "Why it was given up",
}


def _waiting(sight: Sight) -> Markup:
    """Why the rollout waits, and until when."""
    if not sight.waits:
        return NOTHING
    reasons = tag("ul", *(tag("li", text) for text in sight.waits), class_="waits", id="waits")
    return tag("aside", tag("h2", WHY.get(sight.status, "What it waits for")), reasons, class_="waiting")


def _task(task: str) -> Markup:
    """The task; the rest of a long one is folded."""
    lines = task.split("\n")
    begin = "\n".join(lines[:TASK_LINES])[:TASK].rstrip()
    if len(begin) == len(task):
        return tag("p", task or "No task is known.", class_="task")
    whole = block(task, fold=False)
    rest = tag("details", tag("summary", f"all of it, {len(task):,} characters"), whole)
    return tag("div", tag("p", begin, " …", class_="task"), rest, class_="long-task")


def _decided(decision: RolloutSettled | RolloutClosed | None) -> Content:
    if decision is None:
        return None
    return join(time(decision.decided_at_ms), tag("div", decision.cause.replace("_", " "), class_="note"))


def _began(sight: Sight) -> Content:
    """When the first record was appended; and the first turn by its agent's clock, if that differs."""
    logged = min((at for at in sight.account.rollout.times if at > 0), default=None)
    told = min((turn.at for strand in sight.strands for turn in strand.transcript.turns[:1] if turn.at), default=None)
    if logged is None or told is None or logged // 1000 == told // 1000:
        return time(logged)
    said = moment(told)
    shown = said[11:] if said[:11] == moment(logged)[:11] else said
    return join(time(logged), tag("div", "by agents' clocks ", tag("time", shown, title=said), class_="note"))


def _jumps(sight: Sight, links: Links) -> Markup:
    """The parts of the page."""
    account = sight.account
    parts = [
        ("signals", "Hack signals", True),
        ("braid", "The braid", True),
        ("ranking", "Ranking" if account.ranking else "Branches", True),
        ("votes", "Votes", bool(sight.counted.cells or sight.counted.scores)),
        ("rows-summary", "What came of it", account.ranking is not None),
        ("letters", "Dead letters", bool(account.letters or account.unreadable)),
    ]
    there = [tag("a", name, href=f"#{anchor}") for anchor, name, shown in parts if shown]
    if account.ranking is not None:
        there.append(link(f"{several(len(account.rows), 'row')} and their evidence →", links.rows(sight.rollout_id)))
    return tag("nav", *there, class_="jumps", aria_label="On this page")


def _signals(sight: Sight, links: Links) -> Markup:
    """Branches that cheated, or may have, by the records; and branches without signals, or that were not checked."""
    found = [(strand, signal) for strand in _surest_first(sight.strands) for signal in strand.signals]
    items = [tag("li", *_signal(sight, strand, signal, links)) for strand, signal in found]
    rest = [tag("details", tag("summary", f"{len(items) - SIGNALS} more"), tag("ul", *items[SIGNALS:]))]
    return tag(
        "aside",
        tag("h2", "Hack signals" if items else "Hack signals: none"),
        tag("ul", *items[:SIGNALS]) if items else None,
        *(rest if len(items) > SIGNALS else ()),
        *(tag("p", text, class_="note") for text in _without_signals(sight)),
        class_="signals" if items else "signals none",
        id="signals",
    )


def _surest_first(strands: Sequence[Strand]) -> list[Strand]:
    """Strands with signals: confirmed hacks before suspected ones."""
    flagged = [strand for strand in strands if strand.signals]
    return sorted(flagged, key=lambda strand: SURENESS.index(strand.signals[0].sure))


def _without_signals(sight: Sight) -> list[str]:
    """The branches without a signal, by the verdicts that looked for one."""
    so_far = "" if sight.account.rollout.settled is not None else " so far"
    clear = [strand for strand in sight.strands if not strand.signals]
    found: dict[str, list[int]] = {}
    for strand in clear:
        found.setdefault(strand.looks.words, []).append(strand.branch)
    if len(clear) == len(sight.strands) and list(found) == [NOTHING_LOOKED]:
        return [f"No sign of a hack is on record{so_far}. {NOTHING_LOOKED}."]
    examined = [strand.branch for strand in clear if strand.looks.any]
    told = [f"No sign of a hack{so_far}: {branch_list(examined)}."] if examined else []
    sentences = [f"{words}: {branch_list(branches)}." for words, branches in found.items() if words != NOTHING_LOOKED]
    if len(sentences) == 1:
        sentences = [f"{words}." for words in found if words != NOTHING_LOOKED]
    told = [" ".join((*told, *sentences))] if told else []
    unasked = found.get(NOTHING_LOOKED)
    return [*told, *([f"{NOTHING_LOOKED}: {branch_list(unasked)}."] if unasked else [])]


def _signal(sight: Sight, strand: Strand, signal: Signal, links: Links) -> Sequence[Content]:
    files = [
        join(path, " (turn " if len(turns) == 1 else " (turns ", _turn_links(sight, strand, turns, links), ")")
        for path, turns in strand.transcript.files.items()
    ]  # fmt: skip
    where = (
        None
        if signal.turn is None
        else link(f"turn {signal.turn}", links.branch(sight.rollout_id, strand.branch, signal.turn))
    )
    changed = [". Its calls change: ", _listed(files[:8]), "."] if files and signal.turn is None else []
    return (
        tag("strong", link(f"Branch {strand.branch}", links.branch(sight.rollout_id, strand.branch))),
        f" · {signal.words} · ",
        tag("span", CLASSES[signal.sure], class_=f"sure {signal.sure}"),
        [" · ", where] if where else None,
        tag(
            "div",
            " · ".join(part for part in (signal.place, signal.evidence, signal.rule) if part),
            *changed,
            class_="note",
        ),
    )


def _turn_links(sight: Sight, strand: Strand, turns: Sequence[int], links: Links) -> Content:
    shown: list[Content] = [link(turn, links.branch(sight.rollout_id, strand.branch, turn)) for turn in turns[:4]]
    return _listed([*shown, "…"] if len(turns) > 4 else shown)


def _listed(items: Sequence[Content]) -> Content:
    return [join(", " if at else None, item) for at, item in enumerate(items)]


# -- the braid -------------------------------------------------------------------------------------------------------------------


def _drawn(sight: Sight, links: Links, zoom: Zoom) -> Markup:
    return tag(
        "div",
        braid(sight.strands, sight.rollout_id, links, zoom),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="The braid",
    )


def _controls(sight: Sight, links: Links, zoom: Zoom) -> Markup:
    if links.is_file or len(sight.strands) < 2:
        return NOTHING
    rollout_id = sight.rollout_id

    def to(**change: object) -> str | None:
        folded = ",".join(sorted(zoom.folded)) or None
        asked = {"zoom": zoom.scale if zoom.scale > 1 else None, "fold": folded, "first": zoom.first or None} | change
        return links.rollout(rollout_id, **asked)

    scales = [
        link(f"{scale}×", to(zoom=scale if scale > 1 else None), aria_current="true" if scale == zoom.scale else None)
        for scale in SCALES
    ]
    present = [tier for tier in TIERS if any(strand.objective == tier for strand in sight.strands)]
    folds = []
    for tier in present:
        count = sum(strand.objective == tier for strand in sight.strands)
        hidden = tier in zoom.folded
        rest = zoom.folded - {tier} if hidden else zoom.folded | {tier}
        text = f"{'show' if hidden else 'fold'} {count} {tier.replace('_', ' ')}"
        folds.append(link(text, to(fold=",".join(sorted(rest)) or None)))
    total = sum(strand.objective not in zoom.folded for strand in sight.strands)
    parts = []
    if total > PAGE:
        parts = [
            link(
                f"{first + 1}–{min(total, first + PAGE)}",
                to(first=first or None),
                aria_current="true" if first == zoom.first else None,
            )
            for first in range(0, total, PAGE)
        ]
    pair = tag(
        "form",
        *(
            tag("label", said, tag("input", name=name, inputmode="numeric", size="3", pattern="[0-9]+", required=True))
            for name, said in (("a", "Compare "), ("b", " with "))
        ),
        tag("button", "Go"),
        tag("output", id="apart", aria_live="polite"),
        action=links.rollout(rollout_id), method="get", class_="compare",
    )  # fmt: skip
    return tag(
        "div",
        tag("span", "Zoom ", *scales, class_="group"),
        tag("span", *folds, class_="group") if len(present) > 1 else None,
        tag("span", "Branches ", *parts, class_="group") if parts else None,
        pair,
        class_="controls",
    )


def _legend() -> Markup:
    signs = (
        ("call", "one call"), ("calls", "several calls"), ("said", "words only"), ("error", "a call failed"),
        ("rewritten", "context rewritten"), ("answer", "answer"), ("failed", "run failed (red)"), ("parting", "lines part"),
        ("signal", "hack signal (hollow: suspected)"),
    )  # fmt: skip
    shapes = {
        "calls": "M8 4.5h0m0 7h0", "said": "M8 4v8", "error": "M5 5l6 6m0-6l-6 6",
        "rewritten": "M6 2v12m3-12v12", "parting": "M8 3l5 5l-5 5l-5-5z", "signal": "M8 3l5.5 9h-11z",
    }  # fmt: skip
    items = []
    for kind, name in signs:
        shape = tag("path", d=shapes.get(kind, "M8 8h0"), class_="parting" if kind == "parting" else f"mark {kind}")
        items.append(
            tag("li", tag("svg", shape, width="16", height="16", viewBox="0 0 16 16", aria_hidden="true"), name)
        )
    return tag("ul", *items, class_="legend", aria_label="Signs")


# -- ranking and votes -------------------------------------------------------------------------------------------------------------


def _ranking(sight: Sight, links: Links) -> Markup:
    ranking = sight.account.ranking
    columns: tuple[str, ...] = (
        "rank",
        "range",
        "branch",
        "outcome",
        "total",
        "judge",
        "P(beats next)",
        "votes",
        "ended",
        "turns",
        "answer or error",
        "flags",
    )
    if ranking is None:
        columns = ("branch", "outcome", "ended", "turns", "answer or error")
    rows = [_ranked(sight, strand, links) for strand in sight.strands]
    if ranking is None:
        rows = [(*row[2:4], *row[8:11]) for row in rows]
    right = ("rank", *(("branch",) if ranking is not None else ()), "total", "judge", "P(beats next)", "votes", "turns")
    notes: list[Content] = []
    if ranking is not None:
        notes.append(tag("p", powered_sentence(ranking.stats), class_="note"))
    shown = table(columns, rows, right=[name for name in right if name in columns], class_="ranking")
    if len(rows) > FOLDED and not links.is_file:
        shown = tag("details", tag("summary", f"{len(rows)} branches as a table, with their answers"), shown)
    return section("Ranking" if ranking else "Branches", *notes, shown, id_="ranking")


def _ranked(sight: Sight, strand: Strand, links: Links) -> tuple[Content, ...]:
    ranked, standing = strand.ranked, strand.standing
    unended = "running" if sight.account.rollout.settled is None else "never ended"
    answer = tag("span", standing.text, class_="clip", title=standing.text)
    ended = (standing.ended or unended) + (f" (attempt {standing.attempt})" if standing.attempts > 1 else "")
    common = (ended.replace("_", " "), len(strand.transcript.turns), answer)
    branch = link(strand.branch, links.branch(sight.rollout_id, strand.branch), class_="go")
    if ranked is None:
        return ("", "", branch, outcome(strand.objective), "", "", "", "", *common, "")
    low_high = "–" if ranked.rank_low is None else f"{ranked.rank_low}–{ranked.rank_high}"
    missing = f" ({ranked.n_missing} missing)" if ranked.n_missing else ""
    return (
        "–" if ranked.rank is None else ranked.rank, low_high, branch, outcome(strand.objective), number(ranked.total),
        number(ranked.judge_score, 1), number(ranked.p_beats_next), f"{ranked.n_comparisons}{missing}", *common,
        [tag("div", line(flag.replace("_", " ").replace(":", ": "), WHOLE), title=flag_words(flag)) for flag in ranked.flags],
    )  # fmt: skip


# -- what came of it ----------------------------------------------------------------------------------------------------------------


def _came_of_it(sight: Sight, links: Links) -> Markup:
    account = sight.account
    if account.ranking is None:
        return NOTHING
    pairs = account.all(DpoRecord)
    items = [
        tag(
            "li",
            link(
                pair_name(row),
                links.pair(sight.rollout_id, row.chosen_branch, row.rejected_branch),
            ),
            tag(
                "span",
                f" · {row.basis}, margin {row.margin:.3f}"
                + ("" if row.p_chosen is None else f", p {row.p_chosen:.3f}"),
                class_="note",
            ),
        )
        for row in pairs[:60]
    ]
    if len(pairs) > 60:
        items.append(tag("li", f"and {len(pairs) - 60} more"))
    sft, ppo = account.all(SftRecord), account.all(PpoRecord)
    left = sum(each.n_left for each in groups_of(account.rejected))
    of_records = "" if left == len(account.rejected) else f", in {len(account.rejected):,} records"
    return section(
        "What came of it",
        facts(
            [
                ("SFT", _listed(_by_branch(sight, [row.branch_index for row in sft], links)) or "none"),
                ("DPO", tag("ul", *items) if items else "none"),
                ("PPO", _rewards(sight, ppo, links) or "none"),
            ]
        ),
        tag("p", link("All rows, and their evidence →", links.rows(sight.rollout_id)), class_="more"),
        tag("h3", f"Left out ({left:,}{of_records})") if left else None,
        left_out(sight, links, to_records=False),
        id_="rows-summary",
    )


def _by_branch(sight: Sight, branches: Sequence[int], links: Links) -> list[Content]:
    """Branches, each once, with how many rows there are of it."""
    counts: dict[int, int] = {}
    for index in branches:
        counts[index] = counts.get(index, 0) + 1
    return [
        join(link(f"branch {index}", links.branch(sight.rollout_id, index)), f" ({count} rows)" if count > 1 else None)
        for index, count in list(counts.items())[:40]
    ] + ([f"and {len(counts) - 40} more"] if len(counts) > 40 else [])


def _rewards(sight: Sight, rows: Sequence[PpoRecord], links: Links) -> Content:
    """The reward of each branch as a bar, highest first; branches of the same reward share a line."""
    found: dict[tuple[float, float | None], list[int]] = {}
    for row in rows:
        members = found.setdefault((row.reward, row.advantage), [])
        members += [] if row.branch_index in members else [row.branch_index]
    if not found:
        return None
    most = max(1.0, *(reward for reward, _ in found))
    lines = [
        (
            number(reward),
            tag("meter", number(reward), min="0", max=f"{most:.3f}", value=f"{max(0.0, reward):.3f}"),
            "–" if advantage is None else f"{advantage:+.2f}",
            _listed([link(index, links.branch(sight.rollout_id, index)) for index in members]),
        )
        for (reward, advantage), members in sorted(found.items(), key=lambda each: -each[0][0])[:24]
    ]
    more = tag("p", f"and {len(found) - 24} more", class_="note") if len(found) > 24 else None
    return [
        table(("reward", "", "advantage", "branches"), lines, right=("reward", "advantage"), class_="rewards"),
        more,
    ]


def _letters(sight: Sight, links: Links) -> Markup:
    account = sight.account
    if not account.letters and not account.unreadable:
        return NOTHING
    rows = [
        (each.letter.reason, each.letter_id, time(each.at), line(each.letter.message, WHOLE))
        for each in list(account.letters.values())[:100]
    ]
    rows += [("undecodable", each.place, "–", line(each.reason, WHOLE)) for each in account.unreadable[:100]]
    return section(
        "Dead letters",
        table(("reason", "id", "at", "message"), rows),
        tag("p", link("All dead letters", links.letters(rollout=sight.rollout_id))),
        id_="letters",
    )
