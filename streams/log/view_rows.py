"""Rows of the worker's view: the state of a rollout at the worker's last update.

A row of an open rollout is as old as its first facts: its counts have only grown since. The log itself is the truth.
"""

from typing import NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

FINAL = frozenset({"closed", "broken"})
"""Statuses of rows that do not change any more."""


class RankedRow(NamedTuple):
    """A branch in the order of the ranking."""

    branch: int
    rank: int | None
    total: float | None


class ViewRow(BaseModel):
    """One rollout. Fields that a later worker adds are kept, not read."""

    model_config = ConfigDict(frozen=True, extra="allow")

    rollout_id: str
    status: str
    task: str = ""
    expected: int | None = None
    branches: int = 0
    events: int = 0
    started_at: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    settled: str | None = None
    settled_at: int | None = None
    closed: str | None = None
    closed_at: int | None = None
    outcomes: dict[str, int] = Field(default_factory=dict)
    ranking: tuple[RankedRow, ...] = ()
    """Best first."""
    powered: bool | None = None
    rows: dict[str, int] = Field(default_factory=dict)
    """Training rows by kind; `rejected` are those that were left out."""
    why: str | None = None
    """The error of a broken one."""

    @property
    def is_final(self) -> bool:
        """Whether its counts are final."""
        return self.status in FINAL

    @property
    def best(self) -> RankedRow | None:
        """The branch with rank 1."""
        return next((branch for branch in self.ranking if branch.rank == 1), None)


def read_row(value: bytes) -> ViewRow | None:
    """The row in a value of the view's topic; None for something else."""
    try:
        return ViewRow.model_validate_json(value)
    except ValidationError:
        return None


def read_key(key: bytes) -> str:
    """The rollout in a key of the view's topic: plain, or as a JSON string, as Faust writes it."""
    text = key.decode(errors="replace")
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            return str(orjson.loads(text))
        except orjson.JSONDecodeError:
            return text
    return text


def fold_row(rows: dict[str, ViewRow], key: bytes | None, value: bytes | None) -> None:
    """Take a record of the view's topic in: the last row of a key wins, an empty one removes it."""
    if key is None:
        return
    if not value:
        rows.pop(read_key(key), None)
        return
    row = read_row(value)
    if row is not None:
        rows[read_key(key)] = row


def newest_first(rows: dict[str, ViewRow], status: str | None = None) -> list[ViewRow]:
    """The rows, optionally of one status."""
    chosen = [row for row in rows.values() if status in (None, row.status)]
    return sorted(chosen, key=lambda row: (-(row.started_at or 0), row.rollout_id))
