"""One rollout in the worker's memory: its facts, and its state in the worker."""

from dataclasses import dataclass, field

from agents.rollouts.branch_records import Ended
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import next_cutoff
from agents.rollouts.status import Status

PATIENCE_MS = 5_000
"""How long pinned facts may take to be read before the log is searched for them."""


@dataclass(slots=True, eq=False)
class OpenRollout:
    """An unfinished rollout. A restart makes it again from the log."""

    rollout: Rollout
    partition: int
    is_touched: bool = False
    """It waits for the next `advance`."""
    is_news: bool = False
    """The view is to show its state after the next `advance`."""
    was_asked: bool = False
    """The judge's requests were written."""
    last_read: float | None = None
    """When its last fact other than a decision was read, by the monotonic clock."""
    ended: dict[int, Ended] = field(default_factory=dict)
    """By branch, the record that was written when it ended."""
    look_at: int | None = None
    """The time of its earliest entry among the deadlines."""
    awaited: int | None = None
    """The time up to which its partition must be read before it continues."""

    @property
    def rollout_id(self) -> str:
        """Its id."""
        return self.rollout.rollout_id

    def next_look(self, closing: ClosingPolicy) -> int | None:
        """The time of its next deadline, if there is one."""
        rollout = self.rollout
        if rollout.status is Status.OPEN:
            return next_cutoff(rollout, closing).at
        if rollout.settled is not None and not rollout.has_settled_facts():
            return rollout.settled.decided_at_ms + PATIENCE_MS
        if rollout.status is Status.SETTLED and rollout.settled is not None:
            return rollout.settled.judge_deadline_ms
        if rollout.closed is not None:
            return rollout.closed.decided_at_ms + PATIENCE_MS
        return None

    def is_broken(self, watermark: int | None) -> bool:
        """Whether a pinned fact is still missing although the log was read to well after the decision that pins it."""
        rollout = self.rollout
        waiting = (rollout.settled is not None and not rollout.has_settled_facts()) or (
            rollout.closed is not None and not rollout.has_closed_facts()
        )
        if not waiting or rollout.settled is None:
            return False
        decided = (rollout.closed or rollout.settled).decided_at_ms
        return watermark is not None and watermark >= decided + PATIENCE_MS
