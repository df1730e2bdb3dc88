"""The two decisions that turn an open rollout into bytes that never change again.

Both are written by the worker, read back before anything follows from them, and count only the first time they occur for a
rollout. All that is emitted is a pure function of them and of the facts they pin.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Count, Id, Index, Json, Millis, Record
from schemas.events import BranchInfo, EndStatus, Workspace

SettleCause = Literal["complete", "deadline", "idle", "cancelled", "manual", "end_of_input"]
CloseCause = Literal["complete", "judge_deadline", "no_judge", "cancelled"]


class SettledBranch(Record):
    """The facts of one branch that count."""

    branch_index: Index
    """The branch."""
    attempt: Index = 0
    """The attempt that counts: the highest that ended, else the highest."""
    status: EndStatus | None = None
    """How it ended; null when it never did."""
    error: str | None = None
    """Why it failed, in the producer's words, cut to 2000 bytes."""
    info: BranchInfo | None = None
    """The producer's word about the branch."""
    workspace: Workspace | None = None
    """The snapshot that the producer left."""
    n_events: Count = 0
    """How many of its events count."""
    last_seq: Count | None = None
    """The seq of the last one; null without events."""
    gaps: tuple[Count, ...] = ()
    """Seqs up to last_seq that had not arrived, and so never will count."""
    raw_digest: str = ""
    """SHA-256 over the per-event digests, in order."""
    verdict_ids: tuple[str, ...] = ()
    """The verdicts that count: the last final one of each kind, else the last."""
    verdict_kinds: tuple[str, ...] = ()
    """The kind of each of `verdict_ids`, in their order; empty in older settlings, whose ids occur once in a rollout."""
    conflicts: Count = 0
    """How many events of this attempt differ from an earlier one with the same seq; the first ones count."""
    verdict_digests: tuple[str, ...] = ()
    """Which content counts of each of `verdict_ids`, in their order: SHA-256 of what its signature covers, in hex, "" for an
    unsigned one. Empty where none is signed: then the first verdict with an id counts."""


class RolloutSettled(Record):
    """Which branches, events and verdicts count, and under which configuration."""

    settled_id: Id
    """A function of everything below."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    cause: SettleCause
    """Why it settled now."""
    decided_at_ms: Millis
    """The decision's time in the log's own time: of the last fact that counts, or the deadline."""
    opened: bool
    """Whether a RolloutOpened counts; the first one in the log does."""
    branches: tuple[SettledBranch, ...]
    """The branches that count, by branch_index."""
    judge_deadline_ms: Millis | None = None
    """When to close without the votes that are missing; null without a judge."""
    config: Json
    """The effective emission configuration, as canonical JSON."""
    config_digest: str
    """SHA-256 of `config`, in hex."""


class RolloutClosed(Record):
    """Which votes count."""

    closed_id: Id
    """A function of everything below."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    settled_id: Id
    """The decision this one follows from."""
    cause: CloseCause
    """Why it closed now."""
    decided_at_ms: Millis
    """The decision's time in the log's own time."""
    vote_ids: tuple[str, ...] = ()
    """The votes that count, sorted."""
    read_to: dict[str, int] = Field(default_factory=dict)
    """By fact topic, the offset up to which the decision had read: what stands at or after it came too late."""


class Closure(Record):
    """The union of the topic: exactly one field is set."""

    settled: RolloutSettled | None = None
    """Branches and verdicts are pinned."""
    closed: RolloutClosed | None = None
    """Votes are pinned."""
