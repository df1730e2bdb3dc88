"""A closed rollout under another judge: the same branches, events and verdicts, another configuration, other votes.

The facts are not touched. The new settling pins the same facts as the first one, and has an id of its own because its
configuration differs; the same code emits its output.
"""

from collections.abc import Sequence

from agents.judge.schedule import Schedule, schedule
from agents.rollouts.branch_outcomes import branch_outcomes
from agents.rollouts.closure import close_now
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from agents.rollouts.settled_id import with_settled_id
from agents.verdicts.meaning import comparable
from schemas.closures import Closure
from schemas.emission import JudgeConfig
from schemas.judging import JudgeVote


def settled_again(rollout: Rollout, judge: JudgeConfig) -> Rollout:
    """The rollout as it would have settled with this judge, without votes."""
    settled = rollout.settled
    assert settled is not None
    config = pinned_config(settled).model_copy(update={"judge": judge})
    asked = Schedule()
    if settled.cause != "cancelled":
        asked = schedule(comparable(branch_outcomes(rollout, config, settled.branches)), judge)
    deadline = settled.decided_at_ms if settled.judge_deadline_ms is None else settled.judge_deadline_ms
    return rollout.under(
        with_settled_id(
            settled.model_copy(
                update={
                    "settled_id": "-",
                    "judge_deadline_ms": deadline if asked.asks else None,
                    "config": config.text,
                    "config_digest": config.digest,
                }
            )
        )
    )


def closed_again(rollout: Rollout, votes: Sequence[JudgeVote], at: int) -> None:
    """Close it with only these votes, at the time of its first closing: the same votes give the same bytes."""
    for number, vote in enumerate(votes):
        rollout.add(vote, at, ("votes", 0, number))
    rollout.add(Closure(closed=close_now(rollout)), at, ("closures", 0, 0))
