"""The metrics of a judge worker, for Prometheus: answers by position, causes, latency, tokens, and how the judge
behaves.

Counters begin with the worker. The shares (same answer in both orders, first position, ties) are of its last votes,
computed by the same code as `braid judge stats`; an undefined share is NaN.
"""

from collections import deque
from math import nan

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from agents.judge.agreement import judge_stats
from schemas.judging import JudgeVote
from streams.cluster.judge_client import Budget

CALL_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0)

RECENT = 1000
"""Votes from which shares are computed."""

SHARES = {
    "position_consistency": "Share of pairs and samples asked in both orders whose two answers agree",
    "first_position_rate": "Share of decided votes for what was shown first; 0.5 is fair",
    "tie_rate": "Share of valid votes that are ties",
}


class JudgeMetrics:
    """The metrics of one judge worker, in a registry of their own."""

    def __init__(self, judge: str, budget: Budget) -> None:
        self.registry = CollectorRegistry()
        self._judge = judge
        self._recent: deque[JudgeVote] = deque(maxlen=RECENT)
        self._votes = Counter(
            "braid_judge_votes_total",
            "Votes written: first, second (what was preferred by its position), tie, score, or missing",
            ["judge", "outcome"],
            registry=self.registry,
        )
        self._missing = Counter(
            "braid_judge_missing_total", "Votes without an answer", ["judge", "cause"], registry=self.registry
        )
        self._latency = Histogram(
            "braid_judge_call_seconds",
            "From asking to the answer, waiting and repetitions included",
            ["judge"],
            buckets=CALL_BUCKETS,
            registry=self.registry,
        )
        self._tokens = Counter("braid_judge_tokens_total", "Tokens used", ["judge", "kind"], registry=self.registry)
        self._usd = Counter("braid_judge_usd_total", "What votes say they cost", ["judge"], registry=self.registry)
        self.under_way = Gauge("braid_judge_calls_under_way", "Votes being asked for", registry=self.registry)
        left = Gauge("braid_judge_budget_left_calls", "Calls left in this hour", registry=self.registry)
        left.set_function(lambda: budget.left)
        for name, words in SHARES.items():
            gauge = Gauge(f"braid_judge_{name}", f"{words}; last {RECENT} votes", ["judge"], registry=self.registry)
            gauge.labels(judge).set_function(lambda name=name: self._share(name))  # type: ignore[misc]

    def count(self, vote: JudgeVote) -> None:
        """Count a vote that was written."""
        self._recent.append(vote.model_copy(update={"reasoning": None}))
        outcome = _outcome(vote)
        self._votes.labels(self._judge, outcome).inc()
        if outcome == "missing":
            self._missing.labels(self._judge, vote.cause or "unknown").inc()
        if vote.latency_ms is not None:
            self._latency.labels(self._judge).observe(vote.latency_ms / 1000)
        if vote.usage is not None:
            used = {
                "input": vote.usage.input_tokens,
                "output": vote.usage.output_tokens,
                "cached": vote.usage.cached_tokens,
            }
            for kind, tokens in used.items():
                self._tokens.labels(self._judge, kind).inc(tokens or 0)
            self._usd.labels(self._judge).inc(vote.usage.usd or 0.0)

    def _share(self, name: str) -> float:
        value = getattr(judge_stats(list(self._recent)), name)
        return nan if value is None else float(value)


def _outcome(vote: JudgeVote) -> str:
    if vote.score is not None:
        return "score"
    if vote.preferred is None:
        return "missing"
    if vote.preferred == "tie":
        return "tie"
    return "first" if vote.preferred == vote.order[0] else "second"
