"""Work for the judge, and what it said: requests and votes."""

from typing import Literal

from schemas.base import Count, Id, Index, Real, Record

Order = Literal["ab", "ba"]
"""Which branch was shown first: `ab` shows the request's a first."""

Preference = Literal["a", "b", "tie"]
"""Names the request's a or b, never the position it was shown in."""

MissingCause = Literal[
    "unparseable", "refused", "timeout", "rate_limited", "http_5xx", "budget", "not_asked", "unknown"
]
"""Why a judge call gave no preference. Never a tie, never a score."""


CONTENT_JUDGE = "content"
"""The judge of a tie by content: two judged texts were identical, and no judge was asked."""

HIGHEST_SCORE = 10
"""Scores of single branches go from 0 to this."""


class JudgedBranch(Record):
    """One side of a comparison: the whole text the judge sees of it."""

    branch_index: Index
    """The branch."""
    text: str
    """Its answer, its summarized calls, its verdicts: redacted and cut, without the shared prefix."""
    digest: str
    """SHA-256 of the text, in hex."""


class JudgeRequest(Record):
    """One pair to compare (asked in both orders), or one branch to score."""

    request_id: Id
    """A function of the settled rollout, the branches and the rubric."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    settled_id: Id
    """The decision this request follows from."""
    task: str
    """The task of the agents."""
    shared_prefix: str = ""
    """The beginning that all branches of the rollout share, shown once."""
    a: JudgedBranch
    """The branch with the lower index."""
    b: JudgedBranch | None = None
    """The other one; unset when a branch is scored by itself."""
    samples: int = 2
    """How often each order is asked."""
    rubric: str
    """The criterion, in words."""
    rubric_hash: str
    """SHA-256 of the rubric, in hex."""


class Usage(Record):
    """The usage of a model call or a run."""

    input_tokens: Count | None = None
    """Prompt tokens."""
    output_tokens: Count | None = None
    """Generated tokens."""
    cached_tokens: Count | None = None
    """Prompt tokens that came from a cache."""
    usd: Real | None = None
    """Its cost, where the producer says."""


class JudgeVote(Record):
    """One judge call, or why there is none. The first vote with an id counts."""

    vote_id: Id
    """A function of rollout, pair, order, sample, judge, rubric and the digests of both judged texts."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    request_id: Id | None = None
    """The request it answers; unset for votes that came with a file."""
    a: Index
    """The request's first branch."""
    b: Index | None = None
    """The request's second branch; unset for a score."""
    order: Order = "ab"
    """Which of them was shown first."""
    sample: Index = 0
    """The repetition."""
    preferred: Preference | None = None
    """The preferred branch; null when there is no usable answer."""
    score: Real | None = None
    """0..10, when a branch was scored by itself."""
    reasoning: str | None = None
    """Why, in the judge's words."""
    judge: str = "unknown"
    """The judge's model."""
    rubric_hash: str | None = None
    """The rubric it judged by."""
    prompt_hash: str | None = None
    """SHA-256 of the whole prompt."""
    a_digest: str | None = None
    """Digest of the judged text of a."""
    b_digest: str | None = None
    """Digest of the judged text of b."""
    usage: Usage | None = None
    """The usage of the call."""
    latency_ms: Count | None = None
    """How long it took."""
    cause: MissingCause | None = None
    """Why `preferred` and `score` are null."""
