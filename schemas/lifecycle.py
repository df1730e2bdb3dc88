"""The beginning of a rollout, and its end by an operator: the records of `rollouts.lifecycle.v1`."""

from pydantic import Field

from schemas.base import Count, Id, Json, Record


class SummaryOptions(Record):
    """How much of one tool's output is kept."""

    tool: str
    """The tool's name; `*` for every tool that is not named."""
    max_bytes: int = Field(default=800, ge=1, le=16_384)
    """The summary is never longer than this many UTF-8 bytes."""
    keep_first_lines: int = Field(default=3, ge=0, le=1000)
    """Lines kept from the beginning."""
    keep_last_lines: int = Field(default=5, ge=0, le=1000)
    """Lines kept from the end."""


class RolloutOpened(Record):
    """A task was forked. Without this record the configured defaults hold, and the branch count is unknown."""

    rollout_id: Id
    """The rollout; also the Kafka key."""
    task: str
    """The task of the agents."""
    branches: int | None = Field(default=None, ge=1, le=100_000)
    """How many branches to expect."""
    required: tuple[str, ...] | None = None
    """Verdicts a branch needs for an objective status: `build`, `visual`, or a check's name. Unset: the default."""
    deadline_ms: Count | None = None
    """Settle at the latest this long after this record was appended."""
    judge_deadline_ms: Count | None = None
    """Close at the latest this long after settling."""
    system_prompt: str | None = None
    """The system prompt all branches share."""
    tools: Json = "[]"
    """The tools the agents were offered: a JSON array as text."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Free labels: team, dataset, experiment."""
    summarize: tuple[SummaryOptions, ...] = ()
    """Summary limits by tool; what is not named follows the configuration."""
    repo_commit: str | None = None
    """The commit of the code the task is about."""
    tool_manifest_digest: str | None = None
    """Digest of the tool manifest the agents ran with."""
    memories: tuple[str, ...] = ()
    """Ids of past experience that was put into the prompt."""
    held: bool = False
    """Do not settle as complete before a close request releases it; deadlines still hold."""
    allow_failing: bool = False
    """A failing test does not fail the branch when the build says success."""
    task_shown: bool = True
    """Whether the models saw the task. False where it is the instruction of a simulated user: rows then begin with the
    branch's own first message."""
    spec: Json | None = Field(default=None, exclude_if=lambda spec: spec is None)
    """The TaskSpec of the answers, as JSON text; null where they are not constrained."""
    awaited: tuple[str, ...] = Field(default=(), exclude_if=lambda awaited: not awaited)
    """Verdicts that settling waits for and that do not decide the objective: `hacks`. One that says unknown is one."""


class RolloutCancelled(Record):
    """An operator gave the rollout up: branches and evidence are still emitted, training records are not."""

    rollout_id: Id
    """The rollout; also the Kafka key."""
    reason: str | None = None
    """Why, for people."""


class CloseRequested(Record):
    """Nothing more will come: settle with what was appended before this record."""

    rollout_id: Id
    """The rollout; also the Kafka key."""
    end_of_input: bool = False
    """True when a file or producer simply ended; false when a person asked."""
    when_complete: bool = False
    """Settle once complete; all that was appended before this record is read first."""


class Lifecycle(Record):
    """The union of the topic: exactly one field is set."""

    opened: RolloutOpened | None = None
    """A task was forked."""
    cancelled: RolloutCancelled | None = None
    """It was given up."""
    close_requested: CloseRequested | None = None
    """It shall settle now."""
