"""Arms of an experiment: rollouts of the log by the value of a label, as evaluation logs that can be compared.

Items are tasks, samples are branches with a known status. Each arm also has its costs and the share of it that was
admitted; a sum with an unknown part is None.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from agents.audit.eval_row import EvalLog, EvalRow
from agents.rollouts.emission import Emission
from schemas.branches import BranchRecord
from schemas.numbers import nine

KNOWN = {"pass": 1.0, "fail": 0.0}


class Arm:
    """The rollouts with one value of the label."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rows = list[EvalRow]()
        self._branches = self._passes = self._calls = self._failed_calls = self._repairs = 0
        self._sums: dict[str, float | None] = {"tokens": 0.0, "usd": 0.0, "ms": 0.0}
        self._admission: Counter[str] = Counter()

    def add(self, emission: Emission) -> None:
        """Add the emission of a closed rollout."""
        records = {record.branch_index: record for record in emission.branches}
        item = task_id(emission.ranking.task)
        for ranked in emission.ranking.branches:
            score = KNOWN.get(ranked.objective_status)
            self._rows.append(EvalRow(item, score, question=item))
            if score is not None:
                self._branches += 1
                self._passes += score == 1
                self._repairs += ranked.attempt
                self._spend(records[ranked.branch_index])
        for row in (*emission.rows, *emission.rejected):
            if row.admission is not None:
                self._admission[row.admission.category] += 1

    def _spend(self, record: BranchRecord) -> None:
        usage = record.usage
        both = usage is not None and usage.input_tokens is not None and usage.output_tokens is not None
        tokens = usage.input_tokens + usage.output_tokens if both and usage else None  # type: ignore[operator]
        first, last = record.first_event_ms, record.last_event_ms
        spent = {
            "tokens": tokens, "usd": None if usage is None else usage.usd,
            "ms": None if first is None or last is None else last - first,
        }  # fmt: skip
        for name, value in spent.items():
            before = self._sums[name]
            self._sums[name] = None if before is None or value is None else before + value
        self._calls += len(record.tool_calls)
        self._failed_calls += sum(call.error is not None for call in record.tool_calls)

    def log(self) -> EvalLog:
        """The arm as a log that can be compared."""
        return EvalLog(self.name, "log", tuple(self._rows))

    def plain(self) -> dict[str, Any]:
        """Return the arm's numbers as JSON values."""
        rows = self._admission.total()
        per_pass = {
            f"{name}_per_pass": nine(total / self._passes) if total is not None and self._passes else None
            for name, total in self._sums.items()
        }
        return {
            "branches": self._branches, "passes": self._passes,
            "pass_rate": nine(self._passes / self._branches) if self._branches else None, **per_pass,
            "tool_error_rate": nine(self._failed_calls / self._calls) if self._calls else None,
            "repair_rounds": nine(self._repairs / self._branches) if self._branches else None,
            "admission": {name: nine(count / rows) for name, count in sorted(self._admission.items())},
        }  # fmt: skip


def task_id(task: str) -> str:
    """Return the item id of a task."""
    return sha256(task.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def in_order(arms: dict[str, Arm], base: str | None) -> Sequence[Arm]:
    """Return the arms sorted by name, after the base."""
    names = sorted(arms, key=lambda name: (name != base, name))
    return [arms[name] for name in names]
