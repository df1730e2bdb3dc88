"""The counts of an export."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from streams.jobs.counts import RolloutCounts
from streams.jobs.export.whole_rollouts import Whole
from streams.log.topics import DPO, PPO, SFT

NAMED = 20
"""Incomplete rollouts that are named; all are counted."""


@dataclass
class Counts(RolloutCounts):
    """The counts of an export: the object that `--json` prints, with the names that `braid run --json` has."""

    kept_out: Counter[str] = field(default_factory=Counter)
    """Rows that the worker kept out of training, by their first reason in training.rejected.v1."""
    rows: int = 0
    contaminated: dict[str, int] = field(default_factory=dict)
    """Rows by the evaluation item that they repeat."""
    not_carried: dict[str, int] = field(default_factory=dict)
    """Messages of the written rows by the field that the format has no place for."""
    short_items: int = 0
    """Evaluation items too short to be distinguished from chance, and therefore not checked."""
    redacted: int = 0
    """Rows in which something was still to be redacted."""
    incomplete: int = 0
    """Closed rollouts with missing records."""
    uncovered: int = 0
    """Rollouts whose branch records were needed, and whose evidence was made before it listed them."""
    open: int = 0
    """Rollouts that have records and are not closed."""
    files: int = 0
    bytes: int = 0
    missing: list[str] = field(default_factory=list)
    """The first incomplete rollouts, and what they lack."""

    def add(self, whole: Whole) -> None:
        """Count a complete rollout."""
        self.count(whole.ranking, sum(branch.n_events for branch in whole.settled.branches), whole.closing.records + 1)
        topics = Counter(emitted.topic for emitted in whole.closing.emitted)
        self.sft += topics[SFT.name]
        self.dpo += topics[DPO.name]
        self.ppo += topics[PPO.name]
        self.kept_out.update(whole.kept_out)

    def absent(self) -> Counter[str]:
        """Counts of everything that is not in the dataset, by reason: rejected by the worker, or left out by this
        export.
        """
        return self.kept_out + Counter(self.rejected)

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return super().plain() | {
            "kept_out": self.kept_out.total(),
            "rejected": dict(sorted(self.absent().items())),
        }


TOTALS = (
    "rollouts",
    "branches",
    "events",
    "passes",
    "fails",
    "unknown",
    "not_required",
    "sft",
    "dpo",
    "ppo",
    "aep",
    "rows",
)
