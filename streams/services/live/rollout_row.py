"""The row of a rollout in the view, written at transitions only."""

from collections import Counter

from agents.rollouts.rollout import Rollout
from schemas.rankings import Ranking


def view_row(rollout: Rollout, ranking: Ranking | None = None) -> dict[str, object]:
    """The row that `braid rollouts` shows."""
    row: dict[str, object] = {
        "rollout_id": rollout.rollout_id,
        "status": rollout.status.value,
        "task": (rollout.opened.task if rollout.opened else "")[:200],
        "expected": rollout.opened.branches if rollout.opened else None,
        "branches": len(rollout.branches),
        "events": sum(attempt.n_events for attempts in rollout.branches.values() for attempt in attempts.values()),
        "started_at": rollout.started_at,
        "labels": rollout.opened.labels if rollout.opened else {},
    }
    if rollout.settled is not None:
        row |= {"settled": rollout.settled.cause, "settled_at": rollout.settled.decided_at_ms}
    if ranking is not None:
        statuses = Counter(branch.objective_status for branch in ranking.branches)
        row |= {
            "closed": ranking.close_cause,
            "closed_at": ranking.closed_at_ms,
            "outcomes": dict(sorted(statuses.items())),
            "ranking": [[branch.branch_index, branch.rank, branch.total] for branch in ranking.branches],
            "powered": ranking.stats.powered,
        }
    return row
