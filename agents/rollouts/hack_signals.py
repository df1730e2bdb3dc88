"""The hack signals of a closed rollout: from pinned verdicts, from the events of each branch, and from comparing it
with its siblings.

A pure function of pinned facts, so replay derives them again. Verdicts of experiments confirm; events only suspect.
"""

from collections.abc import Mapping, Sequence

from agents.hacks.acts import event_signals, without_common
from agents.hacks.file_rules import place_of
from agents.hacks.verdict import HACKS, DetailsError, signals_of
from agents.rollouts.closed_rollout import ClosedRollout
from agents.summarize.branch import whole_calls
from agents.verdicts.meaning import Verdict, with_signals
from schemas.branches import BranchCall, BranchRecord
from schemas.rankings import HackSignal
from schemas.verdicts import CheckVerdict

PROVING = frozenset({"experiment", "verdict"})
"""Sources that confirm."""

Signals = tuple[HackSignal, ...]


def signalled(source: ClosedRollout, branches: Mapping[int, BranchRecord]) -> ClosedRollout:
    """The closed rollout with the signals of its branches, and with the outcomes that follow from them."""
    if not source.terms.rules.signals_are_read:
        return source
    found = {index: _signals(source, index, branch) for index, branch in branches.items()}
    if not any(found.values()):
        return source
    passing = frozenset(index for index, outcome in source.outcomes.items() if outcome.status == "pass")
    signals = {index: each for index, each in without_common(found, passing).items() if each}
    outcomes = {
        index: with_signals(outcome, signals[index]) if index in signals else outcome
        for index, outcome in source.outcomes.items()
    }
    return source._replace(outcomes=outcomes, signals=signals)


def _signals(source: ClosedRollout, index: int, branch: BranchRecord) -> Signals:
    verdict = next((each for each in source.verdicts[index] if _is_hacks(each)), None)
    told = told_by(verdict) if isinstance(verdict, CheckVerdict) else ()
    known = isinstance(verdict, CheckVerdict) and verdict.details is not None and verdict.status != "unknown"
    if not branch.tool_calls:
        return told
    acted = event_signals(
        branch.tool_calls,
        branch.final_answer,
        branch.task,
        files_known=known,
        whole=lambda: _whole(source, index, branch),
    )
    return tuple(sorted((*told, *acted), key=place_of)) if acted else told


def _is_hacks(verdict: Verdict) -> bool:
    return isinstance(verdict, CheckVerdict) and verdict.name == HACKS


def _whole(source: ClosedRollout, index: int, branch: BranchRecord) -> Sequence[BranchCall]:
    """The calls with whole outputs, if one was truncated in the record."""
    cut = any(each.output_summary is not None and " omitted...]" in each.output_summary for each in branch.tool_calls)
    if not cut:
        return branch.tool_calls
    return tuple(whole_calls((source.rollout.pinned_events() or {}).get(index, []), redacting=source.config.redact))


def told_by(verdict: CheckVerdict) -> Signals:
    """The signals of a verdict; a failing one without readable signals is suspected."""
    try:
        signals = signals_of(verdict.details)
    except DetailsError:
        signals = ()
    proved = verdict.status == "fail"
    read = tuple(
        each if each.kind != "confirmed" or (proved and each.source in PROVING)
        else HackSignal.model_validate({**each.plain(), "kind": "suspected"})
        for each in signals
    )  # fmt: skip
    if proved and not any(each.kind == "confirmed" for each in read):
        return (
            *read,
            HackSignal(rule="verdict.hacks", kind="suspected", source="verdict", evidence=verdict.hint or ""),
        )
    return read
