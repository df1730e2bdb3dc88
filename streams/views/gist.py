"""A record, in one line: `braid tail` and people who scroll through a topic."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from agents.verdicts.meaning import CURRENT, meaning
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.captures import Capture
from schemas.closures import Closure
from schemas.events import AgentEvents
from schemas.evidence import AepRecord
from schemas.judging import JudgeRequest, JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.log.terminal_text import line, listed, number, several
from streams.views.branch_status import detail_of
from streams.views.page import listing_of, pair, rewarded

KINDS = 6
"""Kinds of events that are named."""


def gist(record: Record) -> str:
    """The record in one line: redacted, cut, without anything that a terminal would obey."""
    say: Callable[[Any], str] | None = _GISTS.get(type(record))
    return line("" if say is None else say(record), 160)


def _lifecycle(record: Lifecycle) -> str:
    if record.opened is not None:
        opened = record.opened
        count = "any number of branches" if opened.branches is None else several(opened.branches, "branch", "branches")
        needs = "" if opened.required is None else f", requires {', '.join(opened.required) or 'nothing'}"
        return f"opened: {count}{needs}: {opened.task}"
    if record.cancelled is not None:
        return f"cancelled: {record.cancelled.reason or 'no reason given'}"
    if record.close_requested is not None:
        return "close requested" + (": the input ended" if record.close_requested.end_of_input else "")
    return "empty"


def _events(record: AgentEvents) -> str:
    kinds = Counter(event.event for event in record.events)
    named = listed([f"{kind} x{count}" if count > 1 else kind for kind, count in kinds.items()], KINDS)
    last = record.first_seq + len(record.events) - 1
    seqs = f" seq {record.first_seq}-{last}: {named}" if record.events else ""
    end = f"; ended {record.status or 'without saying how'}" if record.ended else ""
    return f"{_branch(record)}{seqs}{end}"


def _capture(record: Capture) -> str:
    part = f", part {record.part + 1} of {record.parts}" if record.parts > 1 else ""
    left = f" (only the digest of {record.size:,} bytes)" if not record.parts and record.size is not None else ""
    return f"{_branch(record)} {record.kind} {record.capture_id} of {record.source}, {len(record.body):,} bytes{part}{left}"


def _verdict(record: BuildVerdict | VisualVerdict | CheckVerdict) -> str:
    name = f" {record.name}" if isinstance(record, CheckVerdict) else ""
    return f"{_branch(record)}{name} -> {meaning(record, CURRENT).outcome}: {detail_of(record)}"


def _request(record: JudgeRequest) -> str:
    if record.b is None:
        return f"score branch {record.a.branch_index}, {several(record.samples, 'call')}"
    each = f"{several(record.samples, 'call')} each way"
    return f"compare branches {record.a.branch_index} and {record.b.branch_index}, {each}"


def _vote(record: JudgeVote) -> str:
    said = record.cause or "no answer"
    if record.b is None:
        return f"branch {record.a}: " + (f"no score ({said})" if record.score is None else f"score {record.score:g}")
    first, second = (record.a, record.b) if record.order == "ab" else (record.b, record.a)
    preferred = {"a": str(record.a), "b": str(record.b), "tie": "a tie", None: f"no answer ({said})"}[record.preferred]
    reasoning = f": {record.reasoning}" if record.reasoning else ""
    return f"{first} shown before {second}, sample {record.sample}: {record.judge} prefers {preferred}{reasoning}"


def _closure(record: Closure) -> str:
    if record.settled is not None:
        settled = record.settled
        verdicts = sum(len(pin.verdict_ids) for pin in settled.branches)
        count = several(len(settled.branches), "branch", "branches")
        return f"settled ({settled.cause}): {count}, {several(verdicts, 'verdict')}"
    if record.closed is not None:
        return f"closed ({record.closed.cause}): {several(len(record.closed.vote_ids), 'vote')}"
    return "empty"


def _branch_record(record: BranchRecord) -> str:
    said = record.final_answer or record.error or ""
    counts = f"{several(record.n_events, 'event')}, {several(len(record.tool_calls), 'call')}"
    return f"{_branch(record)} {record.status}, {counts}" + (f": {said}" if said else "")


def _ranking(record: Ranking) -> str:
    counts = Counter(branch.objective_status for branch in record.branches)
    best = next((branch for branch in record.branches if branch.rank == 1), None)
    first = "nothing is ranked" if best is None else f"branch {best.branch_index} is best ({number(best.total)})"
    return f"{first}; {listed([f'{count} {status}' for status, count in counts.items()])}"


def _evidence(record: AepRecord) -> str:
    key = f"signed by {record.signature.key_id}" if record.signature is not None else "not signed"
    if record.closing is not None:
        return f"closing of {record.closing.records} records, lists {listing_of(record.closing)}, {key}"
    return f"{record.run_id}: {several(len(record.actions), 'action')}, {key}"


def _sft(record: SftRecord) -> str:
    rank = "" if record.rank is None else f" rank {record.rank},"
    return f"branch {record.branch_index},{rank} {several(len(record.messages), 'message')}"


def _rejected(record: RejectedRecord) -> str:
    return (
        f"{record.kind} of branch {listed([str(index) for index in record.branches], 8)}: {', '.join(record.reasons)}"
    )


def _branch(record: AgentEvents | Capture | BranchRecord | BuildVerdict | VisualVerdict | CheckVerdict) -> str:
    return f"branch {record.branch_index}" + (f" attempt {record.attempt}" if record.attempt else "")


_GISTS: dict[type[Record], Callable[[Any], str]] = {
    Lifecycle: _lifecycle,
    AgentEvents: _events,
    Capture: _capture,
    BuildVerdict: _verdict,
    VisualVerdict: _verdict,
    CheckVerdict: _verdict,
    JudgeRequest: _request,
    JudgeVote: _vote,
    Closure: _closure,
    BranchRecord: _branch_record,
    Ranking: _ranking,
    AepRecord: _evidence,
    SftRecord: _sft,
    DpoRecord: pair,
    PpoRecord: rewarded,
    RejectedRecord: _rejected,
}
