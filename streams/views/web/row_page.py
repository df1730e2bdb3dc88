"""The rows of a rollout as a trainer sees them, the rejected rows, and the evidence with the result of verifying it."""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.rankings import RewardComponent
from schemas.training import DpoRecord, Message, PpoRecord, SftRecord
from streams.log.terminal_text import WHOLE, line, several
from streams.views.page import evidence_lines
from streams.views.web.left_out import groups_of, left_out
from streams.views.web.links import Links, anchor
from streams.views.web.markup import Content, Markup, join, tag
from streams.views.web.page_frame import block, link, pretty, section, table, time
from streams.views.web.reason_words import reason_words
from streams.views.web.sight import Row, Sight, branches_in, pair_name
from streams.views.web.token_words import token_words

ROWS = 200
"""Rows on the page."""

LISTED = "listed by the evidence, just so"


class Checked(NamedTuple):
    """Result of verifying the rollout's evidence."""

    ok: bool
    findings: tuple[tuple[str, str], ...]
    """Records and rows with faults: their positions and reasons."""
    warnings: tuple[str, ...]
    chains: tuple[str, ...]
    good: frozenset[str]
    """Ids of rows that the evidence lists just so."""


def row_page(sight: Sight, checked: Checked | None, links: Links) -> Markup:
    """The content of the page."""
    rows = sight.account.rows
    kinds = (("SFT", SftRecord), ("DPO", DpoRecord), ("PPO", PpoRecord))
    return join(
        tag("div", tag("h1", "Rows"), tag("span", f"of {sight.rollout_id}", class_="note"), class_="title"),
        _evidence(sight, checked),
        *(
            section(
                f"{name} ({len(found)})", *(_row(sight, row, checked, links) for row in found[:ROWS]),
                note=None if len(found) <= ROWS else f"The first {ROWS}.",
            )
            for name, kind in kinds if (found := [row for row in rows if isinstance(row, kind)])
        ),
        None if rows else _none_yet(sight),
        _left_out(sight, links),
    )  # fmt: skip


def _none_yet(sight: Sight) -> Markup:
    """Why there is no row."""
    if not sight.waits:
        return section("Rows", tag("p", "No row came of it.", class_="empty"))
    told = tag("p", "There is none yet: rows are made when the rollout closes. It waits:", class_="note")
    return section("Rows", told, tag("ul", *(tag("li", text) for text in sight.waits)))


def _evidence(sight: Sight, checked: Checked | None) -> Markup:
    account = sight.account
    if not account.evidence:
        return section(
            "Evidence",
            tag("p", "There is none yet: it is written when the rollout closes.", class_="empty"),
            id_="evidence",
        )
    verdict: Content = None
    if checked is not None:
        told = "Verified: signatures, chain, and every record that it lists." if checked.ok else "NOT good."
        verdict = tag("p", told, class_="verdict good" if checked.ok else "verdict bad", id="verdict")
    findings = (
        [] if checked is None else [tag("li", tag("code", where), f" {why}") for where, why in checked.findings[:50]]
    )
    rows = [
        (tag("code", record.run_id), line(record.signature.key_id) if record.signature else "not signed", len(record.actions),
         ", ".join(f"{result.verifier_id} {'pass' if result.passed else 'fail'}" for result in record.verifier_results),
         tag("code", record.record_id[:16], title=record.record_id), time(record.created_at_ms))
        for record in account.evidence[:ROWS]
    ]  # fmt: skip
    return section(
        "Evidence",
        verdict,
        tag("ul", *findings, class_="findings") if findings else None,
        tag(
            "ul",
            *(tag("li", text) for text in evidence_lines(account)),
            *(tag("li", text) for text in (checked.warnings if checked else ())),
        ),
        tag("p", "Check it without us: ", tag("code", sight.verify_with), class_="command"),
        tag(
            "details",
            tag("summary", several(len(account.evidence), "record")),
            table(("run", "key", "actions", "verifiers", "hash", "at"), rows, right=("actions",)),
        ),
        id_="evidence",
        note=None
        if checked is None
        else "Checked by this server's own code when the page was made. " + "; ".join(checked.chains),
    )


def _row(sight: Sight, row: Row, checked: Checked | None, links: Links) -> Markup:
    title = _title(row)
    branches: list[Content] = [
        link(f"branch {index}", links.branch(sight.rollout_id, index)) for index in branches_in(row)
    ]
    if isinstance(row, DpoRecord):
        branches.append(link("side by side", links.pair(sight.rollout_id, row.chosen_branch, row.rejected_branch)))
    listed = None if checked is None else LISTED if row.record_id in checked.good else "NOT as the evidence lists it"
    reasons = "; ".join(reason_words(row.admission.reasons))
    admission = f"{row.admission.category}, score {row.admission.score:.3f}" + (f": {reasons}" if reasons else "")
    marks = [
        tag("span", admission, class_="chip", title="admission"),
        tag("span", row.fidelity, class_="chip", title="how what the model saw is known") if row.fidelity else None,
        tag("span", listed, class_="chip good" if listed == LISTED else "chip bad") if listed else None,
    ]
    whole = None if links.is_file else link("the whole row as JSON", links.data("rows", row.record_id))
    return tag(
        "article",
        tag("div", tag("h3", title), *marks, class_="row-head"),
        tag("div", _reward(sight, row), class_="reward"),
        tag("p", tokens, class_="note tokens") if (tokens := token_words(row)) else None,
        tag("p", _joined([*branches, whole, tag("code", row.record_id)]), class_="note"),
        tag("details", tag("summary", "as a trainer sees it"), *_parts(row)),
        id=anchor(row.record_id),
        class_="row",
    )


def _joined(parts: Sequence[Content]) -> Content:
    there = [part for part in parts if part is not None]
    return [join(" · " if at else None, part) for at, part in enumerate(there)]


def _title(row: Row) -> str:
    if isinstance(row, DpoRecord):
        sure = "" if row.p_chosen is None else f", p {row.p_chosen:.3f}"
        return f"{pair_name(row).capitalize()} · {row.basis}, margin {row.margin:.3f}{sure}"
    if isinstance(row, PpoRecord):
        advantage = "" if row.advantage is None else f", advantage {row.advantage:+.2f}"
        return f"Branch {row.branch_index} · reward {row.reward:.3f}{advantage}"
    return f"Branch {row.branch_index} · rank {row.rank if row.rank is not None else '–'}"


def _reward(sight: Sight, row: Row) -> Content:
    """The components of a reward as a small sum, with the sum that is on record."""
    if isinstance(row, PpoRecord):
        return _sum(row.components, row.reward)
    totals = {strand.branch: strand.ranked.total for strand in sight.strands if strand.ranked is not None}
    if isinstance(row, SftRecord):
        return _sum(row.components, totals.get(row.branch_index))
    if row.basis == "repair":  # both sides are of one branch, whose total does not apply to its rounds
        return None
    chosen = _sum(row.chosen_components, totals.get(row.chosen_branch))
    return [
        tag("div", tag("span", "chosen ", class_="who-side"), chosen),
        tag(
            "div",
            tag("span", "rejected ", class_="who-side"),
            _sum(row.rejected_components, totals.get(row.rejected_branch)),
        ),
    ]


def _sum(components: Sequence[RewardComponent], total: float | None) -> Content:
    if not components:
        return None
    known = [f"{each.weight:g} × {each.key} {each.value:.3f}" for each in components if each.value is not None]
    missing = [each.key for each in components if each.value is None]
    left = f" (left out: {', '.join(missing)} unknown)" if missing else ""
    whole = "" if total is None else f" = {total:.3f}"
    return tag("span", " + ".join(known).replace("+ -", "- ") + whole + left, class_="sum")


def _parts(row: Row) -> list[Markup]:
    if isinstance(row, SftRecord):
        return [_messages("messages", row.messages)]
    if isinstance(row, PpoRecord):
        return [_messages("prompt", row.prompt), _messages("completion", row.completion)]
    return [_messages("prompt", row.prompt), _messages("chosen", row.chosen), _messages("rejected", row.rejected)]


def _messages(name: str, messages: Sequence[Message]) -> Markup:
    items = []
    for message in messages[:400]:
        mark = "" if message.trained is None else " · trained on" if message.trained else " · context only"
        items.append(
            tag(
                "li",
                tag("span", f"{message.role}{mark}", class_="who"),
                tag("details", tag("summary", "reasoning"), tag("pre", message.reasoning_content))
                if message.reasoning_content
                else None,
                block(message.content) if message.content else None,
                *(
                    tag(
                        "pre",
                        line(call.function.name, WHOLE),
                        "\n",
                        pretty(call.function.arguments)[:6000],
                        class_="arguments",
                    )
                    for call in message.tool_calls
                ),
                class_=f"words {message.role}",
            )
        )
    return tag("div", tag("h4", f"{name} ({len(messages)})"), tag("ol", *items, class_="seen"))


def _left_out(sight: Sight, links: Links) -> Markup | None:
    count = sum(each.n_left for each in groups_of(sight.account.rejected))
    return section(f"Left out ({count:,})", left_out(sight, links, to_records=True), id_="left-out") if count else None
