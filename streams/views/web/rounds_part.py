"""The rounds of a branch with constraints: each text next to the one it began from, and the verifier's findings."""

from schemas.compliance import ComplianceAttempt, ComplianceEvalRecord
from schemas.jsontext import parse
from schemas.training import DpoRecord
from streams.log.terminal_text import WHOLE, line
from streams.views.web.links import Links
from streams.views.web.markup import NOTHING, Content, Markup, tag
from streams.views.web.page_frame import facts, link, outcome, section
from streams.views.web.reason_words import BASES
from streams.views.web.sight import Sight
from streams.views.web.strands import Strand
from streams.views.web.text_differences import TEXT, differences

ROUNDS = 40
"""Rounds that are shown."""

MODES = {"direct": "one draft", "prompt_retry": "retries with hints", "full_pcl": "repairs of parts"}
"""For each mode, the steps of a run after its draft."""


def rounds_part(sight: Sight, strand: Strand, prefix: str) -> Markup:
    """The rounds of a branch; empty if it is not a compliance run."""
    runs = sight.rounds_of(strand.branch)
    if not runs:
        return NOTHING
    run = runs[0]
    texts = {each.round: each.output for each in run.attempts}
    rounds = [
        _round(each, texts.get(each.base_round) if each.base_round is not None else None) for each in run.attempts
    ]
    more = len(rounds) - ROUNDS
    return section(
        f"Rounds ({len(rounds)})",
        *rounds[:ROUNDS],
        tag("p", f"and {more} more", class_="note") if more > 0 else None,
        note=_about(run),
        id_=f"{prefix}rounds",
    )


def _about(run: ComplianceEvalRecord) -> str:
    seed = "" if run.seed is None else f", seed {run.seed}"
    said = f"Task {line(run.task_id, WHOLE)}, mode {run.mode} ({MODES[run.mode]}){seed}, decided by the rules {line(run.engine)}."
    flags = f" {', '.join(each.replace('_', ' ') for each in run.flags)}." if run.flags else ""
    return said + flags


def _round(each: ComplianceAttempt, base: str | None) -> Markup:
    how = each.strategy.replace("_", " ") + (f" from round {each.base_round}" if each.base_round is not None else "")
    kept = "kept" if each.committed else "rolled back" if each.rolled_back else "not kept"
    why = f": {line(each.reason, WHOLE)}" if each.reason else ""
    text: Content = each.output[:TEXT] if base is None else differences(each.output[:TEXT], base[:TEXT], "ins")
    return tag(
        "article",
        tag(
            "div",
            tag("h3", f"round {each.round}"),
            outcome(each.status),
            tag("span", f"{how} · by {'the model' if each.made_by == 'model' else 'code'}", class_="note"),
            tag("span", kept + why, class_="chip good" if each.committed else "chip"),
            class_="row-head",
        ),
        _violations(each.violations),
        tag("pre", text, class_="spoken-text"),
        class_="row round",
    )


def _violations(written: str) -> Markup:
    """The constraints that a text breaks."""
    try:
        found = parse(written)
    except ValueError:
        return NOTHING
    broken = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    items = [
        tag("li", tag("code", line(str(each.get("constraint_id")), WHOLE)), f" ({line(str(each.get('level')))}): ",
            line(str(each.get("hint")), WHOLE))
        for each in broken[:50]
    ]  # fmt: skip
    return tag("ul", *items, class_="findings") if items else NOTHING


# -- two rounds as a preference row --------------------------------------------------------------------------------------------------


def repairs_page(sight: Sight, strand: Strand, links: Links, prefix: str) -> Markup:
    """The preference rows of one branch: each round next to the better one."""
    rows = [_repair(sight, row, links, prefix) for row in sight.repairs(strand.branch)]
    return tag(
        "div",
        tag(
            "div",
            tag("h1", "Rounds of ", link(f"branch {strand.branch}", links.branch(sight.rollout_id, strand.branch))),
            tag("span", f"of {sight.rollout_id}", class_="note"),
            class_="title",
        ),
        *rows,
    )


def _repair(sight: Sight, row: DpoRecord, links: Links, prefix: str) -> Markup:
    chosen, rejected = row.chosen_answer or "", row.rejected_answer or ""
    sides = (
        (f"round {row.rejected_round}", "rejected", "chip bad", differences(rejected[:TEXT], chosen[:TEXT], "del")),
        (f"round {row.chosen_round}", "chosen", "chip good", differences(chosen[:TEXT], rejected[:TEXT], "ins")),
    )
    return section(
        f"Round {row.chosen_round} over round {row.rejected_round}",
        facts(
            [
                ("basis", f"{row.basis}: {BASES[row.basis]}"),
                ("margin", f"{row.margin:.3f}"),
                (
                    "better text",
                    None if row.made_by is None else "by the model" if row.made_by == "model" else "by code",
                ),
                ("row", link(row.record_id, links.rows(sight.rollout_id, row.record_id))),
            ]
        ),
        tag(
            "div",
            *(
                tag("div", tag("h3", name, " ", tag("span", side, class_=kind)), tag("pre", text, class_="spoken-text"))
                for name, side, kind, text in sides
            ),
            class_="rounds",
        ),
        id_=f"{prefix}preference",
    )
