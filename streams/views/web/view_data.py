"""The same data as JSON, for programs. Everything is redacted."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import orjson

from agents.verdicts.meaning import UNDECIDED_ENDS, counting, is_final
from schemas.events import Workspace
from streams.log.index_queries import IndexRow
from streams.log.terminal_text import clean
from streams.views.account import Account
from streams.views.branch_status import verdict_facts
from streams.views.web.row_page import Checked
from streams.views.web.sight import Sight
from streams.views.web.strands import Strand, parting
from streams.views.web.turns import Seen, Turn, Words

LIMIT = 200
"""Most items of one answer."""

MOST_BYTES = 8 * 1024 * 1024
"""Of the items of one answer: the item that goes beyond is its last. `first` and the number of items show where to
continue.
"""

Value = TypeVar("Value")


def row_data(row: IndexRow) -> dict[str, Any]:
    """A rollout of the list."""
    return row._asdict()


def turn_data(turn: Turn) -> dict[str, Any]:
    """A turn, with its full texts."""
    calls = [call._asdict() | {"output": call.output} for call in turn.calls]
    words = {
        "given": [words_data(words) for words in turn.given], "reasoning": turn.reasoning, "text": turn.text, "calls": calls,
        "ending": None if turn.ending is None else words_data(turn.ending), "did": turn.did.hex(), "saw": turn.saw.hex(),
    }  # fmt: skip
    for call in calls:
        del call["held"]
    return {name: value for name, value in (turn._asdict() | words).items() if name not in ("thought", "said")}


def words_data(words: Words | Seen) -> dict[str, Any]:
    """Something spoken, with its full text."""
    plain = words._asdict() | {"text": words.text}
    del plain["held"]
    return plain


def some(items: Iterable[Value], make: Callable[[Value], dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The first items as data: up to a number, and little more than the size limit of an answer."""
    found: list[dict[str, Any]] = []
    size = 0
    for item in islice(items, limit):
        found.append(make(item))
        size += len(orjson.dumps(found[-1], default=str))
        if size >= MOST_BYTES:
            break
    return found


def branch_data(sight: Sight, strand: Strand, first: int, limit: int) -> dict[str, Any]:
    """A branch, with some of its turns."""
    turns = strand.transcript.turns
    ranked = strand.ranked
    return {
        "rollout_id": sight.rollout_id,
        **strand.standing._asdict(),
        "objective": strand.objective,
        "rank": None if ranked is None else ranked.rank,
        "flags": list(strand.flags),
        "signals": [signal._asdict() | {"words": signal.words} for signal in strand.signals],
        "verdicts": clean([each._asdict() | {"meaning": each.meaning._asdict()} for each in strand.verdicts]),
        "fidelity": strand.transcript.fidelity,
        "files": strand.transcript.files,
        "rows": [row.record_id for row in sight.rows_of(strand.branch)],
        "total": len(turns),
        "first": first,
        "turns": some(turns[first:], turn_data, limit),
    }


def pair_data(sight: Sight, a: Strand, b: Strand) -> dict[str, Any]:
    """Two branches: where they diverge, and their row or why there is none."""
    apart, row = parting(a.transcript, b.transcript), sight.pair_row(a.branch, b.branch)
    return {
        "rollout_id": sight.rollout_id,
        "branches": [a.branch, b.branch],
        "part_at_turn": None if apart is None else apart.turn,
        "why_part": None if apart is None else apart.why,
        "row": None if row is None else row.record_id,
        "chosen": None if row is None else row.chosen_branch,
        "why_no_row": sight.why_no_pair(a.branch, b.branch) if row is None else [],
    }


def evidence_data(sight: Sight, checked: Checked | None) -> dict[str, Any]:
    """The evidence of a rollout, and the result of verifying it."""
    found = {} if checked is None else checked._asdict() | {"good": sorted(checked.good)}
    whole: dict[str, Any] = clean(
        {
            "rollout_id": sight.rollout_id,
            **found,
            "verify_with": sight.verify_with,
            "records": [record.plain() for record in sight.account.evidence],
        }
    )
    return whole


def work_of(account: Account, required: tuple[str, ...], needs: str) -> list[dict[str, Any]]:
    """The branches of an open rollout that wait for a verdict: they have ended, are complete, and have no final
    verdict.
    """
    rollout = account.rollout
    awaited = tuple(getattr(rollout.opened, "awaited", ()) or ()) if rollout.opened is not None else ()
    if rollout.settled is not None or needs not in (*required, *awaited):
        return []
    found = []
    for index, attempts in sorted(rollout.branches.items()):
        number = max(attempts)
        view = attempts[number].view()
        if not view.complete or view.status in UNDECIDED_ENDS:
            continue
        verdict = counting(verdict_facts(rollout, index, number)).get(needs)
        if verdict is not None and is_final(verdict):
            continue
        workspace: Workspace | None = view.end.workspace if view.end is not None else None
        found.append(
            {
                "rollout_id": account.rollout_id, "branch_index": index, "attempt": number, "needs": needs, "status": view.status,
                "task": rollout.opened.task if rollout.opened is not None else "",
                "labels": rollout.opened.labels if rollout.opened is not None else {},
                "workspace": None if workspace is None else workspace.plain(),
                "snapshot": None if workspace is None else f"/v1/snapshots/{workspace.digest}",
                "ended_at": attempts[number].latest,
            }
        )  # fmt: skip
    cleaned: list[dict[str, Any]] = clean(found)
    return cleaned
