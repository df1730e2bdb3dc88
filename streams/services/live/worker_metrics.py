"""Metrics of the live worker, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from agents.facts.fact import Fact
from schemas.events import AgentEvents
from schemas.judging import JudgeVote

LATENCY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)


class WorkerMetrics:
    """The worker's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.records = Counter(
            "braid_records_read_total", "Records read from fact topics", ["topic"], registry=self.registry
        )
        self.slices = Counter("braid_slices_total", "Slices of agent events folded", registry=self.registry)
        self.events = Counter("braid_events_total", "Agent events folded", registry=self.registry)
        self.votes = Counter("braid_votes_total", "Judge votes read", ["outcome"], registry=self.registry)
        self.repeated = Counter(
            "braid_repeated_facts_total",
            "Facts of closed rollouts that only repeat what counted",
            registry=self.registry,
        )
        self.letters = Counter("braid_dead_letters_total", "Dead letters written", ["reason"], registry=self.registry)
        self.written = Counter("braid_records_written_total", "Records written", ["kind"], registry=self.registry)
        self.closed = Counter(
            "braid_rollouts_closed_total", "Rollouts closed", ["settle_cause", "close_cause"], registry=self.registry
        )
        self.broken = Counter(
            "braid_rollouts_broken_total",
            "Rollouts that were given up: nothing can be made of them",
            registry=self.registry,
        )
        self.open = Gauge("braid_rollouts_open", "Open rollouts", ["status"], registry=self.registry)
        self.trail = Gauge(
            "braid_commit_trail_records", "Records between the commits and what has been read", registry=self.registry
        )
        self.lag = Gauge("braid_processed_lag_records", "Records not read yet", registry=self.registry)
        self.settle_latency = Histogram(
            "braid_settle_seconds",
            "From a rollout's last fact to its settling being read back",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.close_latency = Histogram(
            "braid_close_seconds",
            "From a rollout's last fact to its records being written",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )

    def count(self, fact: Fact) -> None:
        """Count a fact that is folded."""
        if isinstance(fact, AgentEvents):
            self.slices.inc()
            self.events.inc(len(fact.events))
        elif isinstance(fact, JudgeVote):
            self.votes.labels(fact.cause or fact.preferred or "score").inc()
