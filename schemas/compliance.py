"""A task's constraints, and what a run against them gave: TaskSpec and ConstraintIR of the protocol, and ComplianceEvalRecord.

The models of specs, violations, repairs and records accept exactly what the protocol's JSON schemas accept; a spec's JSON has
its fields in the order of those schemas, so its hash is the same everywhere. The Avro record says more than the JSON view.
"""

import hashlib
import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from schemas.base import Count, Id, Index, Json, Record, Whole

EVAL_VERSION: Final = "compliance-eval-record/v1"

ENGINE: Final = "ifeval/1"
"""The rules that verdicts are made by. Any change of a rule is a new engine."""

COMPLIANCE: Final = "compliance"
"""The name of the check, and of its topic's records."""

COMPLIANCE_ATTEMPT: Final = "compliance_attempt"
"""The event that tells about one round of a branch."""

Level = Literal["hard", "soft"]
ConstraintCategory = Literal["format", "content", "style", "tool", "state", "security", "semantic"]
Strategy = Literal["patch", "insert_section", "regenerate_region", "full"]
RoundStrategy = Literal["direct", "retry", "patch", "insert_section", "regenerate_region", "full"]
ComplianceMode = Literal["direct", "prompt_retry", "full_pcl"]
MODES: Final[tuple[ComplianceMode, ...]] = ("direct", "prompt_retry", "full_pcl")
ComplianceStatus = Literal["pass", "fail", "unknown"]
MadeBy = Literal["model", "edit"]
PriorityClass = Literal[
    "system_policy", "user_explicit_constraints", "task_package_constraints", "tool_output_constraints",
    "history_constraints", "style_preferences",
]  # fmt: skip

_Text = Annotated[str, Field(strict=True)]
_Name = Annotated[str, Field(strict=True, min_length=1)]


def _integer(value: Any) -> Any:
    """Return 3 for 3.0: JSON Schema takes both for an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Round = Annotated[int, Field(strict=True, ge=1), BeforeValidator(_integer)]
_Whole = Annotated[int, Field(strict=True, ge=0), BeforeValidator(_integer)]
_Number = Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Place = Annotated[int, Field(strict=True), BeforeValidator(_integer)]
_Range = tuple[_Place, _Place]


class Part(BaseModel):
    """A part of the protocol: closed to unknown fields; an absent field is left out of its JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _has_no_nulls(cls, given: Any) -> Any:
        """Refuse null for an optional field: the protocol knows only absent ones."""
        if isinstance(given, dict):
            for name, value in given.items():
                field = cls.model_fields.get(name)
                if value is None and field is not None and name != "arg":
                    raise ValueError(f"{name}: leave the field out instead of null")
        return given

    def view(self) -> dict[str, Any]:
        """The part as JSON values: fields in the protocol's order, absent ones left out."""
        return self.model_dump(mode="json", exclude_unset=True)


class ConstraintRepair(Part):
    """How a failing constraint is to be repaired."""

    strategy: Strategy
    """The strategy to try first."""
    target_region: _Text | None = None
    """A name of the region, for people."""
    max_rounds: _Round | None = None
    """How many rounds may be spent on it."""


class ConstraintIR(Part):
    """One checkable constraint."""

    id: _Name
    """Unique in its spec."""
    description: _Text
    """The constraint in words; prompts show it."""
    verify_method: _Name
    """`ifeval:<class>` or `<type>:<rule>`."""
    arg: JsonValue = None
    """The parameters of the method."""
    path: _Text | None = None
    """The file that the answer would be, for people."""
    level: Level
    """A soft one is recorded and decides nothing."""
    priority: _Number = Field(ge=0, le=100)
    """The highest is repaired first."""
    category: ConstraintCategory
    """The kind of property."""
    repair: ConstraintRepair | None = None
    """How it is to be repaired."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name; empty where the method takes a bare value, or none."""
        return self.arg if isinstance(self.arg, dict) else {}


class ToolRules(Part):
    """The tools of a task."""

    allowed: tuple[_Text, ...]
    """Tools that may be called."""
    denied: tuple[_Text, ...] | None = None
    """Tools that may not."""


class SpecRepair(Part):
    """Limits of all repairs of a task."""

    max_rounds: _Whole
    """How many rounds."""
    default_strategy: Strategy
    """Of constraints that declare none."""


class SpecTrace(Part):
    """Parts of a run that shall be recorded; ours records all of them."""

    record_constraint_eval: Annotated[bool, Field(strict=True)]
    record_tool_calls: Annotated[bool, Field(strict=True)]
    record_repairs: Annotated[bool, Field(strict=True)]


class TaskSpec(Part):
    """The properties an answer must have. The prompt is not part of it."""

    id: _Name
    """The task."""
    intent: _Name
    """The purpose of the task."""
    language: _Name
    """BCP-47."""
    audience: _Text | None = None
    """The readers."""
    constraints: tuple[ConstraintIR, ...] = Field(min_length=1)
    """At least one."""
    priority_hierarchy: tuple[PriorityClass, ...] = Field(min_length=1)
    """The party whose wish goes first."""
    tools: ToolRules | None = None
    """Tools of the task."""
    repair: SpecRepair | None = None
    """Limits of repairs."""
    trace: SpecTrace | None = None
    """Parts to record."""

    @model_validator(mode="after")
    def _has_unique_ids(self) -> Self:
        seen: set[str] = set()
        for number, each in enumerate(self.constraints):
            if each.id in seen:
                raise ValueError(
                    f"constraints.{number}.id: {each.id!r} is there twice; give every constraint its own id"
                )
            seen.add(each.id)
        return self

    def text(self) -> str:
        """Return the spec as compact JSON: fields in the protocol's order, absent ones left out, keys of `arg` sorted."""
        view = self.view()
        for each in view["constraints"]:
            if "arg" in each:
                each["arg"] = json.loads(json.dumps(each["arg"], sort_keys=True))
        return json.dumps(view, ensure_ascii=False, separators=(",", ":"))

    def digest(self) -> str:
        """Return task_spec_hash: SHA-256 of `text`, in hex."""
        return hashlib.sha256(self.text().encode("utf-8", "surrogatepass")).hexdigest()


class EvidenceSpan(Part):
    """A place in the answer; at least one field is set."""

    region_id: _Text | None = None
    """`response`: all of it."""
    json_pointer: _Text | None = None
    """A place in a JSON answer."""
    char_range: _Range | None = None
    """Code points, half-open."""
    line_range: _Range | None = None
    """Lines, half-open."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("an evidence_span needs at least one field")
        return self


class ConstraintViolation(Part):
    """A failed constraint and its place."""

    constraint_id: _Name
    """The constraint."""
    level: Level
    """Its level."""
    category: ConstraintCategory
    """Its category."""
    hint: _Text
    """The change that would make it pass."""
    evidence_span: EvidenceSpan | None = None
    """The place."""
    detected_at: Literal["pre_decode", "post_decode", "post_tool_call"]
    """When it was seen."""


class StepCost(Part):
    """Tokens of one repair."""

    prompt: _Whole | None = None
    """Read."""
    generation: _Whole | None = None
    """Written."""


class RepairStep(Part):
    """One round of repair."""

    round: _Round
    """Counted from 1."""
    violation_ids: tuple[_Text, ...] = Field(min_length=1)
    """The constraints it tried to repair."""
    strategy: Strategy
    """How."""
    target_region: _Text | None = None
    """Where."""
    ok: Annotated[bool, Field(strict=True)]
    """Whether they hold afterwards."""
    rolled_back: Annotated[bool, Field(strict=True)] | None = None
    """Whether the proposal was discarded."""
    remaining_violation_ids: tuple[_Text, ...] | None = None
    """Constraints that still fail."""
    token_cost: StepCost | None = None
    """Tokens of the round."""
    latency_ms: _Whole | None = None
    """Time it took."""


class RunCost(Part):
    """Tokens of a run."""

    prompt: _Whole | None = None
    """Read for the draft."""
    generation: _Whole | None = None
    """Written for the draft."""
    repair: _Whole | None = None
    """Read and written in rounds >= 1."""


class RunError(Part):
    """Why a run has no result."""

    kind: Literal["model_error", "verifier_error", "repair_error", "workspace_error", "unknown"]
    """Which part failed."""
    message: _Text
    """The message, at most 1,000 characters."""
    stage: Literal["generate", "verify", "repair", "write"]
    """When."""


class EvalView(Part):
    """A ComplianceEvalRecord as JSON: `compliance-eval-record/v1`."""

    schema_version: Literal["compliance-eval-record/v1"]
    """The format."""
    task_id: _Name
    """The task."""
    task_spec_hash: _Text
    """SHA-256 of the spec."""
    model: _Text
    """The model that answered."""
    mode: ComplianceMode
    """How it was run."""
    violations: tuple[ConstraintViolation, ...]
    """The state of round 0, in every mode."""
    repair_trace: tuple[RepairStep, ...]
    """The rounds after it."""
    repair_rounds: _Whole | None = None
    """How many."""
    final_pass: Annotated[bool, Field(strict=True)]
    """Whether the artifact is verified to hold every hard constraint."""
    artifact: _Text
    """The answer."""
    token_cost: RunCost | None = None
    """Tokens."""
    latency_ms: _Number | None = Field(default=None, ge=0)
    """Time of the whole run."""
    trace_uri: _Text | None = None
    """The branch in the log."""
    error: RunError | None = None
    """Set when the run failed; then final_pass is false."""

    @model_validator(mode="after")
    def _errors_do_not_pass(self) -> Self:
        if self.error is not None and self.final_pass:
            raise ValueError("final_pass: a run with an error never passes")
        return self


class ComplianceAttempt(Record):
    """One round of a run: a draft, a retry, or a proposal of the planner."""

    round: Index
    """0 is the draft."""
    strategy: RoundStrategy
    """How the text was made."""
    target: tuple[str, ...] = ()
    """Constraints it was to repair."""
    base_round: Index | None = None
    """The round whose text it began from."""
    output: str
    """The text of the round."""
    made_by: MadeBy
    """model: written by a model, wholly or in part. edit: by code alone."""
    committed: bool = True
    """Whether it became the text of the run."""
    rolled_back: bool = False
    """Whether it was discarded because something else broke."""
    reason: str | None = None
    """Why it was not committed."""
    status: ComplianceStatus
    """Of this text, by the verifier."""
    violations: Json = "[]"
    """Its violations: a JSON array as text."""
    input_tokens: Count | None = None
    """Read."""
    output_tokens: Count | None = None
    """Written."""
    cached_tokens: Count | None = None
    """Read from a cache."""
    latency_ms: Count | None = None
    """Time it took."""


class ComplianceEvalRecord(Record):
    """One run: one sample of a task in one mode, as its verifier saw it."""

    record_id: Id
    """A function of the content."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    branch_index: Index
    """The branch."""
    attempt: Index
    """Its attempt."""
    schema_version: str = EVAL_VERSION
    """The format of the JSON view."""
    task_id: str
    """The task."""
    task_spec_hash: str
    """SHA-256 of the spec."""
    model: str
    """The model that answered."""
    mode: ComplianceMode
    """How it was run."""
    seed: Whole | None = None
    """The seed, where the model takes one."""
    engine: str
    """The rules of the verdict."""
    status: ComplianceStatus
    """The verdict."""
    violations: Json = "[]"
    """Of round 0: ConstraintViolations as a JSON array."""
    final_violations: Json = "[]"
    """Of the answer."""
    repair_trace: Json = "[]"
    """RepairSteps as a JSON array."""
    repair_rounds: Count
    """How many."""
    final_pass: bool
    """Whether the answer is verified to hold every hard constraint."""
    artifact: str
    """The answer."""
    made_by: MadeBy
    """edit: every committed repair was made by code alone."""
    prompt_tokens: Count | None = None
    """Read for the draft."""
    generation_tokens: Count | None = None
    """Written for the draft."""
    repair_tokens: Count | None = None
    """Read and written in rounds >= 1."""
    latency_ms: Count | None = None
    """Time of the whole run."""
    trace_uri: str
    """The branch in the log."""
    error: Json | None = None
    """A RunError as JSON, where the run failed."""
    flags: tuple[str, ...] = ()
    """truncated, inconsistent_compliance; exhausted: rounds were spent, and it still fails."""
    attempts: tuple[ComplianceAttempt, ...] = ()
    """All rounds."""


def eval_view(record: ComplianceEvalRecord) -> dict[str, Any]:
    """Return the JSON view of a record, valid under `compliance-eval-record/v1`."""
    cost = {"prompt": record.prompt_tokens, "generation": record.generation_tokens, "repair": record.repair_tokens}
    found = {
        "schema_version": EVAL_VERSION,
        "task_id": record.task_id,
        "task_spec_hash": record.task_spec_hash,
        "model": record.model,
        "mode": record.mode,
        "violations": json.loads(record.violations),
        "repair_trace": json.loads(record.repair_trace),
        "repair_rounds": record.repair_rounds,
        "final_pass": record.final_pass,
        "artifact": record.artifact,
        "token_cost": {name: count for name, count in cost.items() if count is not None},
        "latency_ms": record.latency_ms,
        "trace_uri": record.trace_uri,
        "error": None if record.error is None else json.loads(record.error),
    }
    return {name: value for name, value in found.items() if value is not None}
