"""When rollouts settle and close: the part of the configuration that decisions use."""

from pydantic import BaseModel, ConfigDict, Field


class ClosingPolicy(BaseModel):
    """When rollouts settle and close, unless RolloutOpened sets it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    deadline_ms: int = Field(default=24 * 3_600_000, gt=0)
    """Settle at the latest this long after the first fact. Required, because an open rollout holds back its partition's
    commit.
    """
    idle_ms: int = Field(default=60_000, gt=0)
    """Without a RolloutOpened, settle when no fact has arrived for this long."""
    judge_deadline_ms: int = Field(default=600_000, gt=0)
    """Close at the latest this long after settling."""
