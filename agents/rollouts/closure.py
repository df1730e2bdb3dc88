"""The closing of a settled rollout: when its votes are pinned, and which.

A function of the facts read so far and the watermark, like the settling.
"""

from collections.abc import Mapping
from typing import Final

from agents.judge.schedule import Schedule, schedule
from agents.rollouts.branch_outcomes import branch_outcomes
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from agents.rollouts.status import Status
from agents.verdicts.meaning import (
    comparable,
)
from schemas.closures import CloseCause, RolloutClosed
from schemas.codec.body import with_content_id
from schemas.codec.maker import unchecked
from schemas.emission import JudgeConfig
from schemas.judging import CONTENT_JUDGE, JudgeVote

_closed_record: Final = unchecked(RolloutClosed)


def close(rollout: Rollout, watermark: int | None, read_to: Mapping[str, int]) -> RolloutClosed | None:
    """The closing that is due: no judge, all votes in, or the judge's deadline passed."""
    settled = rollout.settled
    if settled is None or not rollout.has_settled_facts() or not has_read(rollout, watermark):
        return None
    config = pinned_config(settled)
    deadline = settled.judge_deadline_ms
    if settled.cause == "cancelled":
        return _closed(rollout, "cancelled", settled.decided_at_ms, read_to)
    if deadline is None:  # there is no judge; votes that were written anyway and have been read count
        return _closed(
            rollout, "no_judge", max([settled.decided_at_ms, *(vote.at for vote in rollout.votes.values())]), read_to
        )
    asked = schedule(comparable(branch_outcomes(rollout, config, settled.branches)), config.judge)
    if not missing_calls(rollout, asked, config.judge, deadline):
        in_time = [vote.at for vote in rollout.votes.values() if vote.at <= deadline]
        return _closed(rollout, "complete", max([settled.decided_at_ms, *in_time]), read_to)
    if watermark is not None and watermark >= deadline:
        return _closed(rollout, "judge_deadline", deadline, read_to)
    return None


def close_now(rollout: Rollout) -> RolloutClosed:
    """The closing of a rollout whose facts have all been read: every vote counts."""
    assert rollout.settled is not None
    rollout.status = rollout.status.to(Status.CLOSING)
    cause: CloseCause = "complete" if rollout.votes else "no_judge"
    if rollout.settled.cause == "cancelled":
        cause = "cancelled"
    return _closed(
        rollout, cause, max([rollout.settled.decided_at_ms, *(vote.at for vote in rollout.votes.values())]), {}
    )


def read_first(rollout: Rollout) -> int | None:
    """The time up to which everything must be read before facts alone can lead to the next decision; None if there is
    no such time.

    A worker that settles after a cutoff or a release has read all votes up to it; another worker may close it, which
    has not.
    """
    settled = rollout.settled
    if settled is None:
        return rollout.released_at if rollout.held else None
    whole = settled.cause == "complete" and not rollout.held and rollout.latest >= settled.decided_at_ms
    return None if whole else settled.decided_at_ms


def has_read(rollout: Rollout, watermark: int | None) -> bool:
    """Whether everything that the next decision needs has been read."""
    until = read_first(rollout)
    return until is None or (watermark is not None and watermark >= until)


def missing_calls(rollout: Rollout, asked: Schedule, judge: JudgeConfig, until: int) -> int:
    """How many judge calls had no answer by then, not even a cause."""
    answered: dict[tuple[int, int], set[tuple[str, int]]] = {}
    scored: dict[int, set[int]] = {}
    by_content: set[tuple[int, int]] = set()
    """Pairs of identical texts: they get one tie, and no further votes."""
    for stamped in rollout.votes.values():
        vote = stamped.fact
        if not isinstance(vote, JudgeVote) or stamped.at > until:
            continue
        if vote.b is None:
            scored.setdefault(vote.a, set()).add(vote.sample)
        else:
            swapped = vote.a > vote.b
            if vote.judge == CONTENT_JUDGE:
                by_content.add((min(vote.a, vote.b), max(vote.a, vote.b)))
            order = vote.order if not swapped else ("ba" if vote.order == "ab" else "ab")
            answered.setdefault((min(vote.a, vote.b), max(vote.a, vote.b)), set()).add((order, vote.sample))
    scores = sum(max(0, judge.scalar_samples - len(scored.get(index, ()))) for index in asked.scored)
    return scores + sum(
        max(0, 2 * judge.samples - len(answered.get((pair.a, pair.b), ())))
        for pair in asked.pairs
        if (pair.a, pair.b) not in by_content
    )


def _closed(rollout: Rollout, cause: CloseCause, decided_at: int, read_to: Mapping[str, int]) -> RolloutClosed:
    assert rollout.settled is not None
    return with_content_id(
        _closed_record(
            closed_id="-",
            rollout_id=rollout.rollout_id,
            settled_id=rollout.settled.settled_id,
            cause=cause,
            decided_at_ms=decided_at,
            vote_ids=tuple(sorted(vote_id for vote_id, vote in rollout.votes.items() if vote.at <= decided_at)),
            read_to=dict(read_to),
        ),
        "closed_id",
    )
