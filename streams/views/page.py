"""`braid show` for people: one rollout on a page, in sections of at most a screenful."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from agents.rollouts.branch_outcomes import required_verdicts
from schemas.branches import BranchRecord
from schemas.compliance import ComplianceEvalRecord
from schemas.evidence import AepClosing
from schemas.rankings import RankedBranch, Ranking
from schemas.training import DpoRecord, PpoRecord, SftRecord
from streams.cluster.config import Settings
from streams.log.terminal_text import WHOLE, cut, line, listed, moment, number, several
from streams.log.topics import BRANCHES, COMPLIANCE_EVALS
from streams.views.account import Account
from streams.views.bars import bars, interval, powered_sentence
from streams.views.branch_status import branch_standings, config_of, verdict_standings
from streams.views.layout import cell, facts, lines, section, sheet
from streams.views.vote_table import Tally, tally
from streams.views.wait_reasons import waiting_for

MATRIX = 10
"""Branches up to which votes are shown as a matrix; beyond, pair by pair."""

SPARE = ("± 1.96 se", "missing", "votes", "p>next", "judge", "score")
"""Columns of the ranking that a narrow terminal does without: never the rank, the total and the flags."""

TASK = 400
"""Characters of the task."""


def page(account: Account, settings: Settings) -> Iterator[RenderableType]:
    """All sections that are not empty."""
    yield from _header(account, settings)
    if account.ranking is not None:
        yield ranking_sheet(account.ranking)
    yield _branches(account, settings)
    if account.rollout.verdicts:
        yield _verdicts(account, settings)
    if account.votes:
        yield from _votes(tally(account.votes))
    if account.ranking is not None:
        yield _rows(account)
    if account.rejected:
        yield _left_out(account)
    if account.evidence:
        yield lines("Evidence", evidence_lines(account))
    if account.letters:
        yield _letters(account)
    if account.unreadable:
        texts = [f"{each.place}  {line(each.reason)}" for each in account.unreadable]
        yield lines(f"Records that cannot be decoded ({len(texts)})", texts)


# -- who it is ---------------------------------------------------------------------------------------------------------


def _header(account: Account, settings: Settings) -> Iterator[RenderableType]:
    rollout, view = account.rollout, account.view
    yield Text.assemble(Text(line(account.rollout_id), style="bold"), "  ", cell(account.status))
    known = [
        ("task", line(task_of(account), TASK) or "-"),
        ("started", moment(rollout.started_at or None) + " (all times are UTC)"),
    ]
    if rollout.settled is not None:
        known.append(("settled", f"{moment(rollout.settled.decided_at_ms)}  {rollout.settled.cause}"))
    if rollout.closed is not None:
        known.append(("closed", f"{moment(rollout.closed.decided_at_ms)}  {rollout.closed.cause}"))
    known.append(
        ("required", listed(list(required_verdicts(rollout, config_of(rollout, settings.emission)))) or "nothing")
    )
    if rollout.opened is not None and rollout.opened.labels:
        known.append(("labels", line(" ".join(f"{name}={text}" for name, text in rollout.opened.labels.items()))))
    if view is not None and view.why:
        known.append(("broken", line(view.why)))
    waiting = waiting_for(rollout, settings.emission, settings.closing)
    known += [("waits for" if not at else "", text) for at, text in enumerate(waiting)]
    if waiting and view is None and rollout.settled is None:
        known.append(("", "no worker has seen it yet: is `braid worker` running?"))
    yield facts(known)


def task_of(account: Account) -> str:
    """The task of the agents, from any record that has it."""
    if account.rollout.opened is not None:
        return account.rollout.opened.task
    if account.ranking is not None:
        return account.ranking.task
    return account.view.task if account.view is not None else ""


# -- branches, ranking, verdicts ---------------------------------------------------------------------------------------


def ranking_sheet(ranking: Ranking) -> RenderableType:
    """The ranking as a table, tier by tier, and the power of the group and its judge."""
    drawn = bars([interval(branch.bt_score, branch.se) for branch in ranking.branches])
    columns = (
        "rank", "range", "branch", "objective", "total", "score", "± 1.96 se", "judge", "p>next", "votes", "missing", "flags",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for at, (branch, bar) in enumerate(zip(ranking.branches, drawn, strict=True)):
        if at and branch.objective_status != ranking.branches[at - 1].objective_status:
            rows.append(("",) * len(columns))  # tiers are separate: scores are comparable within one only
        rows.append(_ranked(branch, bar))
    right = ("rank", "branch", "total", "score", "judge", "p>next", "votes", "missing")
    made = sheet("Ranking", columns, rows, right=right, narrow=columns[:-1], spare=SPARE)
    stats = ranking.stats
    judge = ""
    if stats.tie_rate is not None:
        judge = (
            f"The judge: same answer in both orders {_share(stats.position_consistency)}, "
            f"what was shown first won {_share(stats.first_position_rate)}, ties {_share(stats.tie_rate)}."
        )
    return section("", made, Text(powered_sentence(stats)), *([Text(judge)] if judge else []), *_signals(ranking))


def _signals(ranking: Ranking) -> list[RenderableType]:
    """Signs of gamed tests, with file, line and turn."""
    rows = [
        (
            branch.branch_index, signal.kind, signal.rule, signal.source,
            "" if signal.path is None else line(signal.path + (f":{signal.line}" if signal.line else ""), WHOLE),
            "" if signal.turn is None else signal.turn, line(signal.evidence, WHOLE),
        )
        for branch in ranking.branches for signal in branch.signals
    ]  # fmt: skip
    columns = ("branch", "class", "rule", "source", "place", "turn", "evidence")
    return (
        [sheet("Hack signals", columns, rows, right=("branch", "turn"), narrow=columns[:-1], spare=("source",))]
        if rows
        else []
    )


def _ranked(branch: RankedBranch, bar: str) -> tuple[object, ...]:
    span = "-" if branch.rank_low is None else f"{branch.rank_low}-{branch.rank_high}"
    return (
        "-" if branch.rank is None else branch.rank, span, branch.branch_index, branch.objective_status,
        number(branch.total), number(branch.bt_score, 2), bar, number(branch.judge_score, 1), number(branch.p_beats_next),
        branch.n_comparisons, branch.n_missing, line(", ".join(branch.flags), WHOLE),
    )  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _branches(account: Account, settings: Settings) -> RenderableType:
    standings = branch_standings(account.rollout, settings.emission)
    opened = account.rollout.opened
    unended = "running" if account.rollout.settled is None else "never ended"
    expected = f" of {opened.branches}" if opened is not None and opened.branches is not None else ""
    rows = [
        (
            each.branch_index,
            f"{each.attempt}" + (f" of {each.attempts}" if each.attempts > 1 else ""),
            each.ended or unended, each.objective, each.events, each.gaps or "", each.calls, cut(each.text, 70),
        )
        for each in standings
    ]  # fmt: skip
    columns = ("branch", "attempt", "ended", "objective", "events", "gaps", "calls", "answer or error")
    right = ("branch", "attempt", "events", "gaps", "calls")
    return sheet(
        f"Branches ({len(standings)}{expected})", columns, rows, right=right, narrow=columns[:-1], spare=("gaps",)
    )


def _verdicts(account: Account, settings: Settings) -> RenderableType:
    standings = verdict_standings(account.rollout, settings.emission)
    rows = [
        (
            each.branch_index, each.kind, each.meaning.outcome, "yes" if each.counts else "no", each.detail,
            each.produced_by, line(", ".join(each.meaning.flags), WHOLE),
        )
        for each in standings
    ]  # fmt: skip
    columns = ("branch", "verdict", "means", "counts", "what was seen", "by", "flags")
    return sheet(f"Verdicts ({len(standings)})", columns, rows, right=("branch",), narrow=columns[:4], spare=("by",))


def _votes(counted: Tally) -> Iterator[RenderableType]:
    judges = listed([f"{line(name)} {count}" for name, count in counted.judges.items()], 4)
    title = f"Votes ({judges})"
    legend = "row over column: wins when shown first + when shown second; = ties, ? no answer"
    members = counted.branches
    if members and len(members) <= MATRIX:
        columns = ("branch", *(str(index) for index in members))
        rows = [(row, *(counted.cells.get((row, column), "") for column in members)) for row in members]
        yield sheet(title, columns, rows, right=columns, narrow=columns)
        yield Text(legend, style="dim")
    elif members:
        texts = [f"{a} over {b}: {counted.cells[a, b]}   {b} over {a}: {counted.cells[b, a]}" for a, b in counted.pairs]
        yield lines(title, texts)
        yield Text(legend, style="dim")
    if counted.scores:
        scores = [f"branch {index} {sum(found) / len(found):.1f}" for index, found in sorted(counted.scores.items())]
        yield Text("mean scores: " + listed(scores))
    if counted.causes:
        yield Text("no answer: " + listed([f"{cause} {count}" for cause, count in sorted(counted.causes.items())]))


# -- what came of it ---------------------------------------------------------------------------------------------------


def _rows(account: Account) -> RenderableType:
    sft, dpo, ppo = account.all(SftRecord), account.all(DpoRecord), account.all(PpoRecord)
    texts = []
    if sft:
        texts.append(f"SFT {len(sft)}: branch {listed([str(row.branch_index) for row in sft])}")
    if dpo:
        texts.append(f"DPO {len(dpo)}: {listed([pair(row) for row in dpo], 8)}")
    if ppo:
        texts.append(f"PPO {len(ppo)}: {listed([rewarded(row) for row in ppo], 8)}")
    return lines(f"Training rows ({len(sft) + len(dpo) + len(ppo)})", texts or ["none"])


def pair(row: DpoRecord) -> str:
    """A preference, in words."""
    sure = "" if row.p_chosen is None else f", p {row.p_chosen:.3f}"
    return f"{row.chosen_branch} over {row.rejected_branch} ({row.basis}, margin {round(row.margin, 3)}{sure})"


def rewarded(row: PpoRecord) -> str:
    """A rewarded trajectory, in words."""
    advantage = "" if row.advantage is None else f" (advantage {row.advantage:+.2f})"
    return f"branch {row.branch_index} reward {round(row.reward, 3)}{advantage}"


def _left_out(account: Account) -> RenderableType:
    rows = [
        (row.kind, listed([str(index) for index in row.branches], 8), line(", ".join(row.reasons), WHOLE))
        for row in account.rejected
    ]
    return sheet(f"Left out of training ({len(rows)})", ("row", "branches", "reasons"), rows)


def evidence_lines(account: Account) -> list[str]:
    """The signed records, and whether everything that the closing record lists is in the log."""
    records = account.evidence
    keys = sorted({record.signature.key_id for record in records if record.signature is not None})
    unsigned = sum(record.signature is None for record in records)
    signed = f"signed by {line(', '.join(keys))}" if keys else "not signed"
    texts = [f"{several(len(records), 'record')}, {signed}" + (f", {unsigned} not signed" if keys and unsigned else "")]
    closing = next((record.closing for record in records if record.closing is not None), None)
    if closing is None:
        return [*texts, "the closing record is not there yet"]
    present = {
        record.record_id
        for record in (*account.all(BranchRecord), *account.all(ComplianceEvalRecord), *account.rows, *account.rejected)
    }
    missing = [record for record in closing.emitted if record.record_id not in present]
    found = "all of them are in the log" if not missing else f"{len(missing)} of them are NOT in the log"
    texts.append(f"the closing record lists {listing_of(closing)}: {found}")
    if closing.records and not branches_listed(closing):
        texts.append("it was made before branch records were listed: no signature covers those")
    if closing.records != len(records) - 1:
        texts.append(f"it counts {closing.records} records before itself, the log has {len(records) - 1}")
    return texts


def listing_of(closing: AepClosing) -> str:
    """The list of a closing record, counted."""
    branches = branches_listed(closing)
    evals = sum(record.topic == COMPLIANCE_EVALS.name for record in closing.emitted)
    rows = several(len(closing.emitted) - branches - evals, "row")
    rows += f", {several(evals, 'compliance record')}" if evals else ""
    return f"{rows} and {several(branches, 'branch record')}" if branches else rows


def branches_listed(closing: AepClosing) -> int:
    """How many branch records a closing record lists."""
    return sum(record.topic == BRANCHES.name for record in closing.emitted)


def _letters(account: Account) -> RenderableType:
    rows = [
        (each.letter.reason, each.letter_id, moment(each.at), line(each.letter.message, WHOLE))
        for each in account.letters.values()
    ]
    columns = ("reason", "id", "at", "message")
    return sheet(f"Dead letters ({len(rows)})", columns, rows, narrow=columns[:3], spare=("at",))
