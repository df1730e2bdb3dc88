"""One of two datasets that are compared: its rows by subject, and its reasons for missing rows.

An id is a function of the content, so rows are matched by their rollout and branches. Only a hash of each field of a
row is kept: that is enough to name differences, and two datasets need not fit in memory.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class About(NamedTuple):
    """The subject of a row: the same for the same row under other rules."""

    kind: str
    rollout_id: str
    branches: tuple[int, ...]
    number: int = 0
    """Among the rows of this kind about these branches."""

    def __str__(self) -> str:
        named = f"{self.kind} of {self.rollout_id}"
        if self.branches:
            named += f", branch {'-'.join(map(str, self.branches))}"
        return f"{named}, row {self.number + 1}" if self.number else named


class Row(NamedTuple):
    """The kept part of a row."""

    fields: dict[str, int]
    """By field, a hash of its content."""
    made_of: tuple[str, ...] = ()
    """Ids of records."""


class Side(Protocol):
    """One dataset."""

    kinds: list[str]
    """The kinds of rows that it can have."""
    rows: dict[About, Row]
    rollouts: set[str]
    rules: dict[str, Any]
    """The rules under which it was made, as far as they are recorded."""

    def why(self, about: About, row: Row, /) -> str:
        """Why this side has no row for a subject that the other side has."""
        ...


IDS = frozenset({"record_id", "ranking_id", "settled_id", "closed_id", "config_digest", "provenance", "schema_version"})
"""Fields that are derived from the others."""


def hashed(row: Mapping[str, Any]) -> dict[str, int]:
    """A row by its fields."""
    return {name: hash(str(value)) for name, value in row.items() if name not in IDS}
