"""`braid show --json`: everything about one rollout as one JSON object, redacted."""

from typing import Any

from agents.rollouts.branch_outcomes import required_verdicts
from schemas.training import DpoRecord, PpoRecord, SftRecord
from streams.cluster.config import Settings
from streams.log.letter_list import DeadLetter
from streams.log.terminal_text import clean
from streams.views.account import Account
from streams.views.bars import powered_sentence
from streams.views.branch_status import branch_standings, config_of, verdict_standings
from streams.views.page import branches_listed, evidence_lines, task_of
from streams.views.vote_table import Cell, tally
from streams.views.wait_reasons import waiting_for


def report(account: Account, settings: Settings) -> dict[str, Any]:
    """The whole account."""
    rollout = account.rollout
    opened, settled, closed, ranking = rollout.opened, rollout.settled, rollout.closed, account.ranking
    whole: dict[str, Any] = {
        "rollout_id": account.rollout_id,
        "status": account.status,
        "why": account.view.why if account.view is not None else None,
        "task": task_of(account),
        "labels": opened.labels if opened is not None else {},
        "expected": opened.branches if opened is not None else None,
        "required": list(required_verdicts(rollout, config_of(rollout, settings.emission))),
        "started_at": rollout.started_at,
        "settled": None if settled is None else _decision(settled.settled_id, settled.cause, settled.decided_at_ms),
        "closed": None if closed is None else _decision(closed.closed_id, closed.cause, closed.decided_at_ms),
        "waiting_for": waiting_for(rollout, settings.emission, settings.closing),
        "branches": [each._asdict() for each in branch_standings(rollout, settings.emission)],
        "verdicts": [
            each._asdict() | {"meaning": each.meaning._asdict()}
            for each in verdict_standings(rollout, settings.emission)
        ],
        "votes": _votes(account),
        "ranking": None if ranking is None else ranking.plain(),
        "powered": None if ranking is None else powered_sentence(ranking.stats),
        "rows": _rows(account),
        "left_out": [row.plain() for row in account.rejected],
        "evidence": _evidence(account),
        "dead_letters": [letter_json(letter) for letter in account.letters.values()],
        "unreadable": [each._asdict() for each in account.unreadable],
    }
    cleaned: dict[str, Any] = clean(whole)
    return cleaned


def letter_json(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter, without its value."""
    return {
        "id": letter.letter_id,
        "reason": letter.letter.reason,
        "message": letter.letter.message,
        "error": letter.letter.error,
        "topic": letter.letter.topic,
        "partition": letter.letter.partition,
        "offset": letter.letter.offset,
        "rollout_id": letter.rollout_id,
        "at": letter.at,
        "bytes": letter.size,
        "copies": letter.copies,
        "retried_from": list(letter.retried_from),
        "cut": letter.letter.cut or None,
    }


def _decision(decision_id: str, cause: str, at: int) -> dict[str, object]:
    return {"id": decision_id, "cause": cause, "at": at}


def _votes(account: Account) -> dict[str, Any]:
    counted = tally(account.votes)
    return {
        "pairs": [
            {"a": a, "b": b, "a_over_b": _cell(counted.cells[a, b]), "b_over_a": _cell(counted.cells[b, a])}
            for a, b in counted.pairs
        ],
        "scores": {str(index): scores for index, scores in sorted(counted.scores.items())},
        "missing": counted.causes,
        "judges": counted.judges,
        "requests": len(account.requests),
    }


def _cell(cell: Cell) -> dict[str, int]:
    return cell._asdict()


def _rows(account: Account) -> dict[str, Any]:
    return {
        "sft": [{"record_id": row.record_id, "branch": row.branch_index, "rank": row.rank} for row in account.all(SftRecord)],
        "dpo": [
            {
                "record_id": row.record_id, "chosen": row.chosen_branch, "rejected": row.rejected_branch,
                "basis": row.basis, "margin": row.margin, "p_chosen": row.p_chosen,
            }
            for row in account.all(DpoRecord)
        ],
        "ppo": [
            {"record_id": row.record_id, "branch": row.branch_index, "reward": row.reward, "advantage": row.advantage}
            for row in account.all(PpoRecord)
        ],
    }  # fmt: skip


def _evidence(account: Account) -> dict[str, Any]:
    records = account.evidence
    closing = next((record.closing for record in records if record.closing is not None), None)
    return {
        "records": len(records),
        "key_ids": sorted({record.signature.key_id for record in records if record.signature is not None}),
        "listed_rows": None if closing is None else len(closing.emitted) - branches_listed(closing),
        "listed_branches": None if closing is None else branches_listed(closing),
        "says": evidence_lines(account) if records else [],
    }
