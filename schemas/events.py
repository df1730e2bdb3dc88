"""The events of an agent at work: events, carried in slices of one branch.

One Kafka record carries a contiguous run of a branch's events, typically a turn. A single event is a slice of one.
"""

from typing import Literal, NamedTuple

from pydantic import ConfigDict, Field

from schemas.base import Count, Id, Index, Json, Millis, Real, Record, Whole

EndStatus = Literal["answered", "failed", "aborted", "infra_error"]
"""How a branch ended: by an answer, by its own error, because it was stopped, or because what it ran on broke."""

Observed = Literal["summarized", "raw", "unknown"]
"""Which form of a tool's output the model saw: what `summarize` makes of it, the whole, or not stated."""


def _is_none(value: object) -> bool:
    return value is None


class PackedTokens(Record):
    """The tokens of a model call as its engine returned them, packed; the event's data has the digest of each list."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    prompt_keep: Count = 0
    """How many ids of the prompt are those that the call named by `context.after` begins with: its prompt, then its response."""
    prompt_ids: bytes
    """The further ids of the prompt: 32-bit whole numbers, the lowest byte first."""
    ids: bytes
    """The ids of the response, likewise."""
    logprobs: bytes | None = None
    """The log-probability of each id of the response: 32-bit floating-point numbers, the lowest byte first; 64-bit ones if `wide`."""
    wide: bool = False
    """Whether a log-probability needs 64 bits to be kept exactly."""


class AgentEvent(Record):
    """One thing that happened in a branch. Kinds and data keys that we do not know are kept as they are."""

    trace_id: str = ""
    """The run's own id for the trace; empty when the producer has none."""
    parent_trace_id: str | None = None
    """The trace this one was started from."""
    channel: str
    """text, thinking, tool, model, action, artifact, status, or one we do not know."""
    event: str
    """The kind: run_start, tool_call, tool_result, final_answer, error, ..."""
    data: Json
    """The kind's own fields: a JSON object as text."""
    timestamp_ms: Millis | None = None
    """When it happened, by the producer's clock."""
    tokens: PackedTokens | None = Field(default=None, exclude_if=_is_none)
    """On a model call: its tokens, where the engine returned them."""


class EventFields(NamedTuple):
    """The fields of an AgentEvent without the model around them: what a fold reads, by the million."""

    trace_id: str
    parent_trace_id: str | None
    channel: str
    event: str
    data: str
    timestamp_ms: int | None
    tokens: PackedTokens | None = None


def fields_of(event: AgentEvent) -> EventFields:
    """The same event without the model."""
    return EventFields(
        event.trace_id, event.parent_trace_id, event.channel, event.event, event.data, event.timestamp_ms, event.tokens
    )


class AgentInfo(Record):
    """The agent that ran the branch."""

    name: str | None = None
    """The agent's name."""
    model: str | None = None
    """The model that it asked."""
    version: str | None = None
    """The agent's or policy's version."""


class BranchInfo(Record):
    """Facts about a branch beyond its events; sent once, usually on the first slice."""

    temperature: Real | None = None
    """Sampling temperature."""
    seed: Whole | None = None
    """Sampling seed, where the model takes one."""
    session_id: str | None = None
    """The session of the agent's own system."""
    agent: AgentInfo | None = None
    """The agent that ran it."""
    task: str | None = None
    """The task, when no RolloutOpened says it."""
    observed: Observed = "unknown"
    """Which form of tool outputs the model saw."""


class Workspace(Record):
    """The files a branch left behind: the snapshot that verifiers test."""

    uri: str
    """Where the snapshot is."""
    digest: str
    """Its content digest."""


class AgentEvents(Record):
    """A slice: 1..n contiguous events of one attempt of one branch, or the bare news that it ended."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    rollout_id: Id
    """The rollout; also the Kafka key."""
    branch_index: Index
    """The branch, 0..N-1."""
    attempt: Index = 0
    """The try at this branch. A newer attempt fences the older one from its first event on."""
    first_seq: Count = 0
    """The seq of the first event here; the others follow without gaps."""
    events: tuple[AgentEvent, ...] = ()
    """The events, in order."""
    ended: bool = False
    """True on the last slice of the attempt."""
    last_seq: Count | None = None
    """With `ended`: the seq of the attempt's last event, where the producer knows it."""
    status: EndStatus | None = None
    """With `ended`: how it ended, in the producer's words; wins over what the events suggest."""
    error: str | None = None
    """With `ended`: why it failed."""
    branch: BranchInfo | None = None
    """Facts about the branch beyond its events."""
    workspace: Workspace | None = None
    """With `ended`: the snapshot of its files."""
    captured: bool = False
    """Whether the fold of captures wrote it: an attempt of which it writes anything always gets its end, however long that takes."""


def plain_events(piece: AgentEvents) -> tuple[EventFields, ...]:
    """The events of a slice without models: those of one from the log are so already (see `codec.body.decode_slice`)."""
    events: tuple[AgentEvent | EventFields, ...] = piece.events
    if {*map(type, events)} == {EventFields}:
        return events  # type: ignore[return-value]  # all of them are
    return tuple([event if isinstance(event, EventFields) else fields_of(event) for event in events])
