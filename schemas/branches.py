"""A branch as people and trainers look at it: a superset of rollout-wire/v1, made when the branch ends."""

from typing import Literal

from pydantic import Field

from schemas.base import Count, Id, Index, Json, Millis, Real, Record, Whole
from schemas.events import AgentInfo, Observed, Workspace
from schemas.judging import Usage
from schemas.training import Fidelity

BranchStatus = Literal["answered", "failed", "aborted", "infra_error", "running"]
"""How the branch stands; `running` when it never ended."""


class ToolFailure(Record):
    """An error that a tool returned."""

    code: str | None = None
    """The tool's own code."""
    message: str
    """Its text, redacted."""


class BranchCall(Record):
    """One tool call with its result."""

    call_id: str
    """The producer's id for the call; `call-<n>` by position where it gave none."""
    name: str
    """The tool."""
    arguments: Json
    """The arguments: JSON text, redacted."""
    arguments_digest: str
    """SHA-256 of the canonical JSON of the raw arguments, in hex."""
    output_summary: str | None = None
    """The output, redacted and then summarized; null when there was none."""
    output_digest: str | None = None
    """SHA-256 of the raw output's text, in hex; null when no result came."""
    output_bytes: Count | None = None
    """Length of the raw output in UTF-8 bytes."""
    error: ToolFailure | None = None
    """The tool's error."""
    turn: Count = 0
    """The model turn it belongs to, counted from 0: parallel calls share one."""
    text: str | None = None
    """The model's text before its turn's first call, redacted."""
    step: Whole | None = None
    """The producer's own step number."""
    paired: bool = True
    """False for a result that no call asked for."""
    started_ms: Millis | None = None
    """When the call was made."""
    ended_ms: Millis | None = None
    """When the result came."""


class BranchRecord(Record):
    """All that is kept of one attempt of a branch."""

    record_id: Id
    """A function of the content."""
    schema_version: str = "rollout-wire/v1"
    """The wire format this is a superset of."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    task: str
    """The task of the agents."""
    branch_index: Index
    """The branch."""
    attempt: Index
    """The attempt."""
    temperature: Real | None = None
    """Sampling temperature."""
    seed: Whole | None = None
    """Sampling seed."""
    session_id: str | None = None
    """The session of the agent's own system."""
    agent: AgentInfo | None = None
    """The agent that ran it."""
    observed: Observed = "unknown"
    """Which form of tool outputs the model saw."""
    status: BranchStatus
    """How it ended."""
    error: str | None = None
    """Why it failed, redacted."""
    final_answer: str | None = None
    """The answer, redacted; null when there was none."""
    tool_calls: tuple[BranchCall, ...] = ()
    """The calls, in order."""
    usage: Usage | None = None
    """The usage of the whole run."""
    n_events: Count
    """How many events it has."""
    raw_digest: str
    """SHA-256 over the SHA-256 digests of the raw events' canonical JSON, in order."""
    workspace: Workspace | None = None
    """The snapshot of its files."""
    first_event_ms: Millis | None = None
    """Time of the first event that has one."""
    last_event_ms: Millis | None = None
    """Time of the last event that has one."""
    gaps: tuple[Count, ...] = ()
    """Seqs that are missing."""
    redactions: dict[str, int] = Field(default_factory=dict)
    """Removed secrets, by kind."""
    fidelity: Fidelity | None = Field(default=None, exclude_if=lambda fidelity: fidelity is None)
    """How its conversation is known. Null under emission version 1."""
    sequences: Count | None = Field(default=None, exclude_if=lambda sequences: sequences is None)
    """How many conversations its model calls make: sub-agents, compactions and side calls begin others."""
