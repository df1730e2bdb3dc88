"""The results of a look at judges, for Prometheus: files that the node exporter's textfile collector reads.

A command that ends has no port to be asked at. An undefined value is NaN; the time of the run is among the values, so
that a run that is no longer repeated is noticed.
"""

from collections import Counter
from collections.abc import Sequence
from math import nan

from prometheus_client import CollectorRegistry, Gauge

from agents.judge.agreement import RUBRIC, JudgeStats, TimedVote, agreement, by_judge, judge_stats
from streams.cluster.judge_metrics import SHARES
from streams.jobs.judge.calibration import Calibration, Drift


class _Gauges:
    """Gauges of one kind, each made when it is first set."""

    def __init__(self, prefix: str, labels: dict[str, str]) -> None:
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self._labels = labels
        self._made: dict[str, Gauge] = {}

    def set(self, name: str, words: str, value: float | None, **more: str) -> None:
        """Set one metric; `more` are labels in addition to the common ones."""
        labels = self._labels | more
        if name not in self._made:
            self._made[name] = Gauge(f"{self._prefix}_{name}", words, sorted(labels), registry=self.registry)
        made = self._made[name]
        (made.labels(**labels) if labels else made).set(nan if value is None else value)

    def shares(self, stats: JudgeStats, **more: str) -> None:
        """Set how a judge behaved."""
        self.set("votes", "Votes, those without an answer included", stats.votes, **more)
        self.set("missing_votes", "Votes without an answer", stats.votes - stats.valid, **more)
        for name, words in SHARES.items():
            self.set(name, words, getattr(stats, name), **more)


def calibration_metrics(found: Calibration, changed: Drift | None, at_s: float) -> CollectorRegistry:
    """Metrics of a calibration, and of the changes since an earlier one."""
    gauges = _Gauges("braid_judge_calibration", {"judge": found.judge, "rubric": found.rubric_hash[:RUBRIC]})
    plain, counts = found.plain(), Counter(found.outcomes.values())
    gauges.set("time_seconds", "When the judge was asked", at_s)
    for outcome in ("right", "wrong", "undecided", "missing"):
        gauges.set("pairs", "Golden pairs by what came of them", counts[outcome], outcome=outcome)
    for name, words in (
        ("accuracy", "Share of the pairs with an answer that were right"),
        ("accuracy_low", "Lower end of its Wilson 95% interval"),
        ("accuracy_high", "Upper end of its Wilson 95% interval"),
    ):
        gauges.set(name, words, plain[name])
    gauges.shares(found.stats)
    if changed is not None:
        gauges.set("drift_pairs", "Pairs that both calibrations have an answer for", changed.pairs)
        gauges.set("drift_changed_pairs", "Those of them with another outcome now", len(changed.changed))
        gauges.set("drift_accuracy_before", "Share of them that were right before", changed.accuracy_before)
        gauges.set("drift_accuracy_now", "Share of them that are right now", changed.accuracy_now)
        gauges.set("drift_mcnemar_p", "Exact p of so many turning right or wrong by chance", changed.mcnemar_p)
        gauges.set("drift_same_question", "1 when judge and rubric are those of before", float(changed.same_question))
    return gauges.registry


def stats_metrics(votes: Sequence[TimedVote], at_s: float) -> CollectorRegistry:
    """How the judges of stored votes behave, and whether they agree."""
    judges, gauges = by_judge(votes), _Gauges("braid_judge_stored", {})
    gauges.set("time_seconds", "When the votes were read", at_s)
    gauges.set("agreement_alpha", "Krippendorff's alpha of the judges, nominal", agreement(judges))
    for name, found in judges.items():
        gauges.shares(judge_stats([each.vote for each in found]), judge=name)
    return gauges.registry
