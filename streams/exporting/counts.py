"""What an export did, counted."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from streams.exporting.rollouts import Whole
from streams.topics import DPO, PPO, SFT

NAMED = 20
"""Incomplete rollouts that are named; all are counted."""


@dataclass
class Counts:
    """What an export did: the object that `--json` prints, with the names that `braid run --json` has."""

    rollouts: int = 0
    branches: int = 0
    events: int = 0
    closed: int = 0
    passes: int = 0
    fails: int = 0
    unknown: int = 0
    not_required: int = 0
    sft: int = 0
    dpo: int = 0
    ppo: int = 0
    kept_out: Counter[str] = field(default_factory=Counter)
    """Rows that the worker kept out of training, by their first reason in training.rejected.v1."""
    aep: int = 0
    rows: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    """What this export left out, by reason."""
    contaminated: dict[str, int] = field(default_factory=dict)
    """Rows by the evaluation item that they repeat."""
    redacted: int = 0
    """Rows in which something was still to be redacted."""
    incomplete: int = 0
    """Closed rollouts of which something is missing."""
    open: int = 0
    """Rollouts that have records and are not closed."""
    bad_lines: int = 0
    """Records of the log that could not be read."""
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    out: str = ""
    missing: list[str] = field(default_factory=list)
    """The first incomplete rollouts, and what they miss."""

    def add(self, whole: Whole) -> None:
        """Count a rollout that is whole."""
        self.rollouts += 1
        self.closed += 1
        self.aep += whole.closing.records + 1
        self.branches += len(whole.ranking.branches)
        self.events += sum(branch.n_events for branch in whole.settled.branches)
        statuses = Counter(branch.objective_status for branch in whole.ranking.branches)
        self.passes += statuses["pass"]
        self.fails += statuses["fail"]
        self.unknown += statuses["unknown"]
        self.not_required += statuses["not_required"]
        topics = Counter(emitted.topic for emitted in whole.closing.emitted)
        self.sft += topics[SFT.name]
        self.dpo += topics[DPO.name]
        self.ppo += topics[PPO.name]
        self.kept_out.update(whole.kept_out)

    def leave(self, reason: str, count: int = 1) -> None:
        """Count what was left out."""
        self.rejected[reason] = self.rejected.get(reason, 0) + count

    def absent(self) -> Counter[str]:
        """All that is not in the dataset, by reason: what the worker kept out, and what this export left out."""
        return self.kept_out + Counter(self.rejected)

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return vars(self) | {
            "kept_out": self.kept_out.total(),
            "rejected": dict(sorted(self.absent().items())),
            "seconds": round(self.seconds, 3),
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
