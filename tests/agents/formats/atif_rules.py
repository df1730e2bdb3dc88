"""The rules of ATIF v1.8 as strict models: a reading of RFC 0001 and of the models that harbor 0.25.0 ships."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agents.formats.atif_steps import MEDIA_TYPES


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Source(_Strict):
    media_type: str
    path: str


class Part(_Strict):
    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: Source | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> "Part":
        if self.type == "text":
            assert self.text is not None
            assert self.source is None
        else:
            assert self.text is None
            assert self.source is not None
            assert self.source.media_type in MEDIA_TYPES[self.type]
        return self


Content = str | list[Part]


class Call(_Strict):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class Result(_Strict):
    source_call_id: str | None = None
    content: Content | None = None
    extra: dict[str, Any] | None = None


class Observation(_Strict):
    results: list[Result]


class Step(_Strict):
    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    message: Content
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    observation: Observation | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _holds_together(self) -> "Step":
        if self.timestamp is not None:
            datetime.fromisoformat(self.timestamp)
        if self.source != "agent":
            assert self.reasoning_content is None
            assert self.tool_calls is None
        called = {call.tool_call_id for call in self.tool_calls or ()}
        assert len(called) == len(self.tool_calls or ())
        results = self.observation.results if self.observation else []
        assert all(each.source_call_id is None or each.source_call_id in called for each in results)
        return self


class Agent(_Strict):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class FinalMetrics(_Strict):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = Field(default=None, ge=0)


class Trajectory(_Strict):
    schema_version: Literal["ATIF-v1.8"]
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    final_metrics: FinalMetrics | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list["Trajectory"] | None = None

    @model_validator(mode="after")
    def _is_numbered(self) -> "Trajectory":
        assert [step.step_id for step in self.steps] == list(range(1, len(self.steps) + 1))
        names = [each.trajectory_id for each in self.subagent_trajectories or ()]
        assert None not in names
        assert len(set(names)) == len(names)
        return self
