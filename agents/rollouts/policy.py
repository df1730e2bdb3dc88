"""When rollouts settle and close: the part of the configuration that decisions look at."""

from pydantic import BaseModel, ConfigDict, Field


class ClosingPolicy(BaseModel):
    """When rollouts settle and close where RolloutOpened does not say."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    deadline_ms: int = Field(default=24 * 3_600_000, gt=0)
    """Settle at the latest this long after the first fact. Not optional: an open rollout holds back its partition's commit."""
    idle_ms: int = Field(default=60_000, gt=0)
    """Without a RolloutOpened, settle when nothing has come for this long."""
    judge_deadline_ms: int = Field(default=600_000, gt=0)
    """Close at the latest this long after settling."""
