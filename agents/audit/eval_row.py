"""One answer of a system to one item of an evaluation, from any tool; and the log that contains it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class EvalRow:
    """One sample of one item."""

    id: str
    score: float | None
    """1 is right; None if the log has neither `correct` nor `score`."""
    error: bool = False
    """Whether the harness failed. Such rows are counted separately."""
    expected: str | None = None
    predicted: str | None = None
    text: str | None = None
    """The whole output of the system; None if it was not logged."""
    finish_reason: str | None = None
    n_tokens: int | None = None
    max_tokens: int | None = None
    """The token limit under which the text was written."""
    question: str | None = None
    """The identity of the question: another question under the same id is a different item."""
    protocol: Mapping[str, str] = field(default_factory=dict)
    """The protocol settings of the item, by name."""

    @property
    def counts(self) -> bool:
        """Whether statistics count the row."""
        return not self.error and self.score is not None

    @property
    def is_wrong(self) -> bool:
        """Whether the row counts and is not fully right."""
        return not self.error and self.score is not None and self.score < 1


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line or element that is not a row, at its position."""

    place: str
    reason: str


@dataclass(frozen=True)
class EvalLog:
    """An evaluation log."""

    name: str
    shape: str
    """The name of the tool that wrote the log."""
    rows: tuple[EvalRow, ...]
    bad: tuple[BadRow, ...] = ()
    protocol: Mapping[str, str] = field(default_factory=dict)
    """The protocol settings of all items, by name."""
    filter: str | None = None
    """The lm-eval filter of these rows."""
    other_filters: tuple[str, ...] = ()
    """Filters of the log that are left out."""
    metric: str | None = None
    remarks: tuple[str, ...] = ()
    """Remarks that a reader must know before reading the numbers."""

    @cached_property
    def items(self) -> dict[str, list[EvalRow]]:
        """Return the counted rows by item id."""
        found: dict[str, list[EvalRow]] = {}
        for row in self.rows:
            if row.counts:
                found.setdefault(row.id, []).append(row)
        return found

    @property
    def errors(self) -> int:
        """How many rows failed in the harness."""
        return sum(not row.counts for row in self.rows)


def named(rows: "tuple[EvalRow, ...]") -> list[tuple[str, EvalRow]]:
    """Yield each counted row with its sample name: the item's id, with a number if any item has several samples."""
    counting = [row for row in rows if row.counts]
    seen: dict[str, int] = {}
    numbered = []
    for row in counting:
        seen[row.id] = seen.get(row.id, 0) + 1
        numbered.append((f"{row.id}#{seen[row.id]}", row))
    return numbered if len(seen) < len(counting) else [(row.id, row) for row in counting]
