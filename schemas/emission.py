"""The configuration that decides what is emitted. It is pinned in every RolloutSettled, so replay uses the same one.

Nothing here says *when* a rollout closes (that is the worker's closing policy) or *where* records go; only what they say.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_SUMMARY_BYTES = 16_384
"""No summary is longer: of every output no more than twice this is held in memory."""

JudgeKind = Literal["none", "external", "scripted", "anthropic", "openai"]
"""The voter: no judge; a producer outside that writes votes to the log; a rule file; a model by the Messages API or
chat completions."""

JudgeMode = Literal["pairwise", "scalar", "pairwise+scalar"]
"""The questions to a judge: which of two branches is better; how good one is, 0..10; or both."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class SummaryLimits(_Section):
    """How much of a tool's output is kept."""

    max_bytes: int = Field(default=800, ge=1, le=MAX_SUMMARY_BYTES)
    """Never more UTF-8 bytes than this."""
    keep_first_lines: int = Field(default=3, ge=0, le=1000)
    """Lines kept from the beginning."""
    keep_last_lines: int = Field(default=5, ge=0, le=1000)
    """Lines kept from the end."""


class SummarizeConfig(SummaryLimits):
    """Limits for every tool, and for tools by name."""

    tools: dict[str, SummaryLimits] = Field(default_factory=dict)
    """Limits of tools that need more or less."""


class Weight(_Section):
    """One reward function of the ranking's total."""

    key: str
    """Its name in the records."""
    weight: float
    """Its weight."""
    component: Literal["objective", "judge", "judge_scalar"]
    """The component that it weighs; each is in [0, 1]."""


class RankingConfig(_Section):
    """How branches are ranked."""

    ridge: float = Field(default=0.1, ge=1e-4, le=1e4)
    """Lambda of the penalised likelihood: keeps a branch that wins everything finite."""
    weights: tuple[Weight, ...] = (
        Weight(key="objective", weight=1.0, component="objective"),
        Weight(key="judge", weight=0.3, component="judge"),
    )
    """The components of the total."""


class RewardsConfig(_Section):
    """The verifiable reward: max(0, pass_weight x base + coverage_bonus x coverage - hack_penalty x hacked)."""

    pass_weight: float = 1.0
    """Weight of the base: 1 for a pass, the share of tests that passed for a fail."""
    hack_penalty: float = 0.4
    """Taken off for a confirmed hack."""
    coverage_bonus: float = 0.1
    """Added in proportion to coverage: to passing branches, where the coverage of all of them is known."""
    hacked_rows: Literal["reject", "penalise"] = Field(default="reject", exclude_if=lambda rows: rows == "reject")
    """The PPO row of a confirmed hack: rejected, or trained on with its penalty, never above an unhacked sibling."""


class PairsConfig(_Section):
    """Which branches make a preference pair."""

    min_probability: float = Field(default=0.9, ge=0.5, le=1.0)
    """Judged pairs need at least this probability that the chosen is better."""
    max_per_rollout: int = Field(default=4, ge=0)
    """Best against worst first."""


class AdmissionConfig(_Section):
    """Which branches and rows may be trained on."""

    reject_below: float = 0.4
    """Scores below this are rejected."""
    train_from: float = 0.6
    """Scores from this on may be trained on; between the two they are kept for audit."""


class JudgeConfig(_Section):
    """The judge that compares branches of one tier."""

    kind: JudgeKind = "none"
    """The source of votes."""
    model: str = ""
    """The judge's model, where there is one."""
    rubric: str = "Overall quality and correctness of the work for the task."
    """The criterion, in words; its hash is its version."""
    # A field that was added after the first release is left out of the pinned text where it is the default: the
    # configuration of
    # an older log keeps its digest, and so the log its bytes.
    mode: JudgeMode = Field(default="pairwise", exclude_if=lambda mode: mode == "pairwise")
    """The kind of question: pairs, scores of single branches, or both."""
    samples: int = Field(default=2, ge=1, le=16)
    """Calls for each order of a pair."""
    scalar_samples: int = Field(default=3, ge=1, le=16, exclude_if=lambda samples: samples == 3)
    """Calls for the score of a branch; the mean of those with an answer counts."""
    max_judge_calls: int = Field(default=120, ge=0)
    """Calls for a rollout, pairs before scores; what is beyond is not asked."""
    max_text_bytes: int = Field(default=8000, ge=256)
    """Of a branch's judged text."""


NEWEST_VERSION = 2
"""Of emission. Version 1 is frozen: a rollout that settled under it is emitted with the same bytes for ever."""


class EmissionConfig(_Section):
    """All of it."""

    # Pinned texts of before there was a version have none, and must keep their digests.
    version: int = Field(default=NEWEST_VERSION, ge=1, le=NEWEST_VERSION, exclude_if=lambda version: version == 1)
    """The rules and schemas by which everything is made that follows from a rollout."""
    required: tuple[str, ...] = ("build",)
    """Verdicts that decide the objective status where RolloutOpened does not say."""
    redact: bool = True
    """Remove secrets and personal data before anything is kept."""
    turn_text: bool = True
    """Put what the model said before a tool call into the training messages."""
    reasoning: Literal["keep", "drop"] = Field(default="keep", exclude_if=lambda reasoning: reasoning == "keep")
    """Whether training messages have the model's reasoning."""
    subagents: Literal["rows", "drop"] = Field(default="rows", exclude_if=lambda subagents: subagents == "rows")
    """Whether conversations of sub-agents become rows."""
    max_output_bytes: int = Field(default=65_536, ge=1, le=1_048_576, exclude_if=lambda limit: limit == 65_536)
    """A reconstructed branch whose model saw a longer raw output is in no row: outputs are never cut."""
    summarize: SummarizeConfig = SummarizeConfig()
    judge: JudgeConfig = JudgeConfig()
    ranking: RankingConfig = RankingConfig()
    rewards: RewardsConfig = RewardsConfig()
    pairs: PairsConfig = PairsConfig()
    admission: AdmissionConfig = AdmissionConfig()

    @model_validator(mode="after")
    def _keeps_passes_ahead(self) -> Self:
        """Refuse weights under which a failing branch could have a higher reward than a passing one."""
        rewards = self.rewards
        if self.version > 1 and (rewards.pass_weight <= 0 or rewards.hack_penalty < 0 or rewards.coverage_bonus < 0):
            raise ValueError("rewards: pass_weight must be over 0, hack_penalty and coverage_bonus not below 0")
        return self

    @property
    def totals_follow_outcomes(self) -> bool:
        """Whether the total of every passing branch is above that of every failing one, whatever a judge says."""
        others = sum(abs(each.weight) for each in self.ranking.weights if each.component != "objective")
        return sum(each.weight for each in self.ranking.weights if each.component == "objective") > others

    @classmethod
    def pinned(cls, text: str) -> Self:
        """The configuration that a settling pins; without a version in it, it is of version 1. Raises ValueError."""
        found = json.loads(text)
        return cls.model_validate({"version": 1, **found} if isinstance(found, dict) else found)

    @cached_property
    def text(self) -> str:
        """The configuration as JSON: what RolloutSettled pins."""
        return self.model_dump_json()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `text`, in hex."""
        return sha256(self.text.encode()).hexdigest()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that computes its text and digest itself: pydantic would copy those of the original, if it knows them."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("text", "digest"):
            vars(copied).pop(name, None)
        return copied
