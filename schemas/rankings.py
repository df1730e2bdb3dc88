"""The ranking of a closed rollout, with how sure it is."""

from typing import Literal

from pydantic import Field

from schemas.base import Count, Id, Index, Millis, Real, Record, Share
from schemas.closures import CloseCause, SettleCause

ObjectiveStatus = Literal["pass", "fail", "unknown", "not_required"]
"""The outcome of the required verdicts together; `not_required` when none is required."""


class RewardComponent(Record):
    """One part of a reward, kept beside the sum."""

    key: str
    """Its name: objective, judge, judge_scalar, verifiable, ..."""
    value: Real | None
    """Its value; null is not 0: it was left out."""
    weight: Real
    """Its configured weight."""


SignalSource = Literal["verdict", "experiment", "files", "events", "siblings", "judge"]
"""Where a hack signal comes from: facts of a verdict or an experiment confirm, reading suspects, votes judge."""

SignalClass = Literal["confirmed", "suspected", "judged"]


class HackSignal(Record):
    """A sign that a branch gamed its tests (`agents/hacks`)."""

    rule: str
    """The rule: T5.harness_hook, L.canary."""
    kind: SignalClass
    """Whether it is proved, read off files or acts, or voted."""
    source: SignalSource
    """How it was found."""
    path: str | None = None
    """The file."""
    line: Count | None = None
    """The line of the file, counted from 1."""
    seq: Count | None = None
    """The event."""
    turn: Count | None = None
    """The model turn, counted from 0."""
    evidence: str = ""
    """The code or command, redacted, at most 200 bytes."""


class RankedBranch(Record):
    """One branch in the order of the ranking."""

    branch_index: Index
    """The branch."""
    attempt: Index
    """The attempt that counts."""
    objective_status: ObjectiveStatus
    """The outcome of the required verdicts together."""
    objective_score: Real | None = None
    """1 for pass, 0 for fail, else null."""
    flags: tuple[str, ...] = ()
    """Oddities: inconsistent verdicts, hack signals, gaps."""
    bt_score: Real | None = None
    """Bradley-Terry score; null when nothing was compared."""
    se: Real | None = None
    """Its standard error."""
    judge_score: Real | None = None
    """0..10: expected wins against the others of its component; null when nothing was compared."""
    judge_scalar: Real | None = None
    """0..10: mean of the judge's scores; null without any."""
    components: tuple[RewardComponent, ...] = ()
    """The components of `total`."""
    total: Real | None = None
    """Weighted sum of the components that are known."""
    rank: Count | None = None
    """1 is best; null for unknown branches."""
    rank_low: Count | None = None
    """Best rank that is plausible at 95%."""
    rank_high: Count | None = None
    """Worst rank that is plausible at 95%."""
    p_beats_next: Share | None = None
    """Probability that it is really better than the next one in its tier."""
    n_comparisons: Count = 0
    """Valid votes it was part of."""
    n_missing: Count = 0
    """Asked votes without an answer."""
    signals: tuple[HackSignal, ...] = Field(default=(), exclude_if=lambda signals: not signals)
    """Signs of gaming the tests; each is in `flags`, too. None under emission version 1."""


class RankingStats(Record):
    """How much the group can tell."""

    n: Count
    """Branches with a known outcome."""
    passes: Count
    """How many of them pass."""
    pass_rate: Share | None = None
    """passes / n."""
    wilson_low: Share | None = None
    """Lower end of the 95% interval of the pass rate."""
    wilson_high: Share | None = None
    """Upper end."""
    powered: bool = False
    """False when n < 10 or the interval is too wide to mean much."""
    min_detectable_delta_pp: Real | None = None
    """Half-width of the interval in percentage points."""
    mcnemar_p: Share | None = None
    """Exact McNemar of top against bottom half; descriptive only."""
    position_consistency: Share | None = None
    """Share of pairs judged the same in both orders."""
    first_position_rate: Share | None = None
    """Share of decided votes that went to what was shown first."""
    tie_rate: Share | None = None
    """Share of valid votes that were ties."""


class Ranking(Record):
    """The ranked branches of one closed rollout."""

    ranking_id: Id
    """A function of the content."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    task: str
    """The task of the agents."""
    settled_id: Id
    """The decision that pinned branches and verdicts."""
    closed_id: Id
    """The decision that pinned votes."""
    settle_cause: SettleCause
    """Why it settled."""
    close_cause: CloseCause
    """Why it closed."""
    closed_at_ms: Millis
    """Time of the closing decision."""
    branches: tuple[RankedBranch, ...]
    """Best first; unknown ones last, without rank."""
    stats: RankingStats
    """How much the group can tell."""
    config_digest: str
    """The configuration it was made under."""
