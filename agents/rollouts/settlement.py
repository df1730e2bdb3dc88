"""The settling of a rollout: when its branches and verdicts are pinned, and which.

A function of the facts read so far, the policy, and the watermark: the time up to which every fact topic of the rollout's
partition has been read. A deadline is decided only when the watermark has passed it, so a backlog or a re-read never settles
early by the clock of a machine. Facts appended after a deadline do not count.

A held rollout (`braid ingest`) settles not when it is complete, but when it is complete and everything appended before
its release has been read: no fact before the release is too late, whichever topic is read first.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from agents.judge.schedule import Schedule, schedule
from agents.rollouts.attempt import Attempt, View
from agents.rollouts.branch_outcomes import branch_outcomes, required_verdicts
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout, verdict_key
from agents.rollouts.settled_id import with_settled_id
from agents.rollouts.status import Status
from agents.summarize.branch import n_events, raw_digest
from agents.summarize.output import summarize
from agents.verdicts.meaning import (
    UNDECIDED_ENDS,
    comparable,
    counting,
    is_last_word,
    kind_of,
)
from schemas.closures import RolloutSettled, SettleCause, SettledBranch
from schemas.codec.maker import unchecked
from schemas.emission import EmissionConfig
from schemas.judging import JudgeVote

_settled_branch_record: Final = unchecked(SettledBranch)
_settled_record: Final = unchecked(RolloutSettled)

MAX_ERROR_BYTES = 2000
"""Bytes of a producer's error text in the settling."""


class Cutoff(NamedTuple):
    """A time after which no fact counts."""

    at: int
    cause: SettleCause


def settle(
    rollout: Rollout, config: EmissionConfig, policy: ClosingPolicy, watermark: int | None
) -> RolloutSettled | None:
    """The settling that is due: complete before any cutoff, or a cutoff that the watermark has passed."""
    if rollout.started_at is None:
        return None
    cutoff = next_cutoff(rollout, policy)
    if rollout.held:
        return _settle_held(rollout, config, policy, cutoff, watermark)
    if is_complete(rollout, config, cutoff.at):
        return _settled(rollout, config, policy, Cutoff(cutoff.at, "complete"))
    if watermark is not None and watermark >= cutoff.at:
        return _settled(rollout, config, policy, cutoff)
    return None


def _settle_held(
    rollout: Rollout, config: EmissionConfig, policy: ClosingPolicy, cutoff: Cutoff, watermark: int | None
) -> RolloutSettled | None:
    """The settling of a held rollout: complete after its release, or a cutoff that has passed."""
    if watermark is None:
        return None
    released = rollout.released_at
    if released is not None and released <= min(cutoff.at, watermark) and is_complete(rollout, config, cutoff.at):
        return _settled(rollout, config, policy, Cutoff(cutoff.at, "complete"), released)
    if watermark < cutoff.at:
        return None
    if cutoff.cause in ("end_of_input", "manual") and is_complete(rollout, config, cutoff.at):
        cutoff = Cutoff(cutoff.at, "complete")
    return _settled(rollout, config, policy, cutoff, cutoff.at)


def settle_now(rollout: Rollout, config: EmissionConfig, policy: ClosingPolicy) -> RolloutSettled:
    """The settling of a rollout whose facts have all been read: the end of a file."""
    until = rollout.latest
    cause: SettleCause = "complete" if is_complete(rollout, config, until) else "end_of_input"
    if rollout.cancelled_at is not None:
        cause = "cancelled"
    rollout.status = rollout.status.to(Status.SETTLING)
    return _settled(rollout, config, policy, Cutoff(until, cause))


def next_cutoff(rollout: Rollout, policy: ClosingPolicy) -> Cutoff:
    """The earliest moment after which nothing counts, by the facts read so far."""
    assert rollout.started_at is not None
    if rollout.opened is not None:
        limit = policy.deadline_ms if rollout.opened.deadline_ms is None else rollout.opened.deadline_ms
        cutoffs = [Cutoff(rollout.opened_at + limit, "deadline")]
    else:
        cutoffs = [Cutoff(rollout.started_at + policy.deadline_ms, "deadline")]
        idle = _idle_until(rollout, policy.idle_ms)
        if idle is not None:
            cutoffs.append(Cutoff(idle, "idle"))
    if rollout.cancelled_at is not None:
        cutoffs.append(Cutoff(rollout.cancelled_at, "cancelled"))
    if rollout.close_at is not None:
        cutoffs.append(Cutoff(rollout.close_at, "end_of_input" if rollout.close_is_end_of_input else "manual"))
    return min(cutoffs)


def _idle_until(rollout: Rollout, idle_ms: int) -> int | None:
    """When the rollout had been idle for `idle_ms`, by the times of its facts.

    A captured branch may pause for longer, and always gets its end: None while one is waited for.
    """
    captured = [each for attempts in rollout.branches.values() for each in attempts.values() if each.captured]
    if captured:
        return max(rollout.times) + idle_ms if all(each.may_have_ended for each in captured) else None
    rollout.times.sort()
    until = rollout.times[0] + idle_ms
    for at in rollout.times:
        if at > until:
            break
        until = at + idle_ms
    return until


def is_complete(rollout: Rollout, config: EmissionConfig, until: int) -> bool:
    """Whether by then all expected branches had ended, all required verdicts were final and all awaited ones had
    arrived.
    """
    if rollout.opened is None or rollout.opened.branches is None or rollout.opened_at > until:
        return False
    if len(rollout.branches) < rollout.opened.branches:
        return False
    required = required_verdicts(rollout, config)
    final: set[tuple[int, int, str]] | None = None
    ended: list[tuple[int, int]] = []
    for index in range(rollout.opened.branches):
        attempts = rollout.branches.get(index)
        if not attempts:
            return False
        number = max(attempts)  # a newer attempt that is still running is waited for
        if not attempts[number].may_have_ended or not (view := attempts[number].view(until)).complete:
            return False
        if view.status in UNDECIDED_ENDS:
            continue
        ended.append((index, number))
        if required:
            if final is None:
                final = _final_verdicts(rollout, until)
            if any((index, number, kind) not in final for kind in required):
                return False
    return not rollout.opened.awaited or all(_has_come(rollout, *place, until) for place in ended)


def _has_come(rollout: Rollout, index: int, number: int, until: int) -> bool:
    """Whether all verdicts that are only waited for have arrived; one with status unknown counts as arrived."""
    assert rollout.opened is not None
    come = {
        kind_of(stamped.fact)
        for stamped in rollout.verdicts.values()
        if not isinstance(stamped.fact, JudgeVote)
        and stamped.at <= until
        and (stamped.fact.branch_index, stamped.fact.attempt) == (index, number)
    }
    return come.issuperset(rollout.opened.awaited)


def _final_verdicts(rollout: Rollout, until: int) -> set[tuple[int, int, str]]:
    """(branch, attempt, kind) of every verdict that was pass or fail by then."""
    found = set()
    for stamped in rollout.verdicts.values():
        verdict = stamped.fact
        if stamped.at <= until and not isinstance(verdict, JudgeVote) and is_last_word(verdict):
            kind = next(iter(counting([verdict])))
            found.add((verdict.branch_index, verdict.attempt, kind))
    return found


def _settled(
    rollout: Rollout, config: EmissionConfig, policy: ClosingPolicy, cutoff: Cutoff, not_before: int = 0
) -> RolloutSettled:
    until = cutoff.at
    expected = rollout.opened.branches if rollout.opened is not None else None
    indexes = range(expected) if expected is not None else sorted(_indexes(rollout, until))
    counted = [_settled_branch(rollout, index, until) for index in indexes]
    pins = tuple(pin for pin, _ in counted)
    decided_at = until
    if cutoff.cause == "complete":
        decided_at = max([rollout.opened_at, not_before, *(latest for _, latest in counted)])
    outcomes = branch_outcomes(rollout, config, pins)
    asked = schedule(comparable(outcomes), config.judge) if cutoff.cause != "cancelled" else Schedule()
    limit = policy.judge_deadline_ms
    if rollout.opened is not None and rollout.opened.judge_deadline_ms is not None:
        limit = rollout.opened.judge_deadline_ms
    return with_settled_id(
        _settled_record(
            settled_id="-",
            rollout_id=rollout.rollout_id,
            cause=cutoff.cause,
            decided_at_ms=decided_at,
            opened=rollout.opened is not None,
            branches=pins,
            judge_deadline_ms=decided_at + limit if asked.asks else None,
            config=config.text,
            config_digest=config.digest,
        )
    )


def _indexes(rollout: Rollout, until: int) -> set[int]:
    """Branches with any fact: events, or only verdicts."""
    found = {
        index
        for index, attempts in rollout.branches.items()
        if any(attempt.view(until).pieces or attempt.end for attempt in attempts.values())
    }
    return found | {
        stamped.fact.branch_index
        for stamped in rollout.verdicts.values()
        if stamped.at <= until and not isinstance(stamped.fact, JudgeVote)
    }


def _settled_branch(rollout: Rollout, index: int, until: int) -> tuple[SettledBranch, int]:
    """The facts of a branch that count, and when the last of them was appended."""
    number, attempt, view = counting_attempt(rollout.branches.get(index, {}), until)
    stamped = [
        each for each in rollout.verdicts.values()
        if each.at <= until and not isinstance(each.fact, JudgeVote) and each.fact.branch_index == index and each.fact.attempt == number
    ]  # fmt: skip
    verdicts = counting([each.fact for each in stamped if not isinstance(each.fact, JudgeVote)])
    latest = max(
        [
            view.pieces[-1].at if view.pieces else 0,
            attempt.latest if attempt and attempt.latest <= until else 0,
            *(each.at for each in stamped),
        ]
    )
    pinned = sorted(
        (verdict.verdict_id, kind, rollout.verdicts[verdict_key(verdict)].digest() if verdict.signature else "")
        for kind, verdict in verdicts.items()
    )
    return settled_attempt(index, number, attempt, view, pinned), latest


def settled_attempt(
    index: int, number: int, attempt: Attempt | None, view: View, verdicts: Sequence[tuple[str, str, str]] = ()
) -> SettledBranch:
    """The pin of an attempt in its current state, with (id, kind, digest) of its verdicts."""
    end, digests = view.end, tuple(digest for _, _, digest in verdicts)
    return _settled_branch_record(
        branch_index=index,
        attempt=number,
        status=view.status,
        error=None if end is None or end.error is None else summarize(end.error, MAX_ERROR_BYTES),
        info=attempt.info if attempt else None,
        workspace=end.workspace if end else None,
        n_events=n_events(view.pieces),
        last_seq=view.last_seq,
        gaps=view.gaps,
        raw_digest=view.raw_digest,
        verdict_ids=tuple(verdict_id for verdict_id, _, _ in verdicts),
        verdict_kinds=tuple(kind for _, kind, _ in verdicts),
        conflicts=view.conflicts,
        verdict_digests=digests if any(digests) else (),
    )


_NOTHING = View([], None, (), None, None, raw_digest(()))


def counting_attempt(attempts: dict[int, Attempt], until: int | None) -> tuple[int, Attempt | None, View]:
    """The attempt that counts: the highest that has ended, else the highest."""
    views = {number: attempts[number].view(until) for number in sorted(attempts, reverse=True)}
    seen = {number: view for number, view in views.items() if view.pieces or view.end is not None}
    if not seen:
        return 0, None, _NOTHING
    number = next((number for number, view in seen.items() if view.status is not None), next(iter(seen)))
    return number, attempts[number], seen[number]
