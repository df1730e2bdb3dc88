"""The outcomes of rollouts, counted: the names that `--json` of `braid run`, `braid export` and `braid replay`
share."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agents.rollouts.emission import Emission
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, SftRecord


@dataclass
class RolloutCounts:
    """Counts of closed rollouts and of their results."""

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
    rejected: dict[str, int] = field(default_factory=dict)
    """Rejected rows, by their first reason."""
    aep: int = 0
    bad_lines: int = 0
    """Lines, or records of the log, that could not be read."""
    seconds: float = 0.0
    out: str = ""

    def count(self, ranking: Ranking, events: int, evidence: int) -> None:
        """One more rollout."""
        self.rollouts += 1
        self.closed += 1
        self.branches += len(ranking.branches)
        self.events += events
        self.aep += evidence
        statuses = [branch.objective_status for branch in ranking.branches]
        self.passes += statuses.count("pass")
        self.fails += statuses.count("fail")
        self.unknown += statuses.count("unknown")
        self.not_required += statuses.count("not_required")

    def leave(self, reason: str, count: int = 1) -> None:
        """Count something that was left out."""
        self.rejected[reason] = self.rejected.get(reason, 0) + count

    def members(self) -> dict[str, Any]:
        """Everything that is counted, by name; `Counts.include` adds it up."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return self.members() | {"rejected": dict(sorted(self.rejected.items())), "seconds": round(self.seconds, 3)}


@dataclass
class Counts(RolloutCounts):
    """Rollouts that were folded here."""

    dead_letters: int = 0
    judge: dict[str, Any] | None = None
    """The usage of the judge; None without one."""
    first_bad: list[str] = field(default_factory=list, repr=False)
    warnings: int = 0
    """Verdicts that have no effect; left out of `--json` if there are none."""
    first_warning: str = ""
    untrusted: int = 0
    """Verdicts that no trusted key has signed: they do not count. Left out of `--json` if there are none."""
    first_untrusted: str = ""
    broken: list[str] = field(default_factory=list)
    """Rollouts that could not be made, and why."""
    made: list[str] = field(default_factory=list, repr=False)
    """Ids of the rollouts that were made."""
    configs: Counter[str] = field(default_factory=Counter, repr=False)
    """Those by the digest of the configuration that they were made under."""

    def add(self, emission: Emission) -> None:
        """Count the results of a rollout."""
        self.count(emission.ranking, sum(branch.n_events for branch in emission.branches), len(emission.evidence))
        self.made.append(emission.ranking.rollout_id)
        self.configs[emission.ranking.config_digest] += 1
        kinds = [type(row) for row in emission.rows]
        self.sft += kinds.count(SftRecord)
        self.dpo += kinds.count(DpoRecord)
        self.ppo += kinds.count(PpoRecord)
        for record in emission.rejected:
            self.leave(record.reasons[0])

    def include(self, part: Mapping[str, Any]) -> None:
        """Add the counts of one part of the work, as plain values."""
        for name, value in part.items():
            mine = getattr(self, name)
            if isinstance(value, dict):
                for key, count in value.items():
                    mine[key] = mine.get(key, 0) + count
            elif isinstance(value, list):
                mine.extend(value)
            elif isinstance(value, int):
                setattr(self, name, mine + value)

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        unsaid = {"first_bad", "made", "configs"}
        unsaid |= {"judge"} if self.judge is None else set()
        unsaid |= set() if self.broken else {"broken"}
        unsaid |= set() if self.warnings else {"warnings", "first_warning"}
        unsaid |= set() if self.untrusted else {"untrusted", "first_untrusted"}
        return {name: value for name, value in super().plain().items() if name not in unsaid}
