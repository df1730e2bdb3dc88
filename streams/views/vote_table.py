"""Votes, counted by pair and by the side shown first: this shows whether a judge prefers a position."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.judging import JudgeVote


class Cell(NamedTuple):
    """The votes of one branch against another."""

    shown_first: int = 0
    """Wins when it was shown first."""
    shown_second: int = 0
    """Wins when it was shown second."""
    ties: int = 0
    missing: int = 0
    """Calls without a usable answer."""

    def __str__(self) -> str:
        ties = f" ={self.ties}" if self.ties else ""
        missing = f" ?{self.missing}" if self.missing else ""
        return f"{self.shown_first}+{self.shown_second}{ties}{missing}"


@dataclass
class Tally:
    """All votes of a rollout."""

    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    """By (branch, other branch)."""
    causes: dict[str, int] = field(default_factory=dict)
    """Why calls have no answer."""
    scores: dict[int, list[float]] = field(default_factory=dict)
    """Scores of branches that were asked about one by one."""
    judges: dict[str, int] = field(default_factory=dict)

    @property
    def branches(self) -> list[int]:
        """Branches that were compared."""
        return sorted({index for pair in self.cells for index in pair})

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs that were compared, the lower index first."""
        return sorted((a, b) for a, b in self.cells if a < b)

    def add(self, vote: JudgeVote) -> None:
        """Count a vote."""
        self.judges[vote.judge] = self.judges.get(vote.judge, 0) + 1
        if vote.cause is not None or (vote.preferred is None and vote.score is None):
            cause = vote.cause or "unknown"
            self.causes[cause] = self.causes.get(cause, 0) + 1
        if vote.b is None:
            if vote.score is not None:
                self.scores.setdefault(vote.a, []).append(vote.score)
            return
        one, other = (vote.a, vote.b), (vote.b, vote.a)
        for pair in (one, other):
            cell = self.cells.setdefault(pair, Cell())
            if vote.preferred == "tie":
                self.cells[pair] = cell._replace(ties=cell.ties + 1)
            elif vote.preferred is None:
                self.cells[pair] = cell._replace(missing=cell.missing + 1)
        if vote.preferred in ("a", "b"):
            winner = one if vote.preferred == "a" else other
            cell = self.cells[winner]
            first = vote.a if vote.order == "ab" else vote.b
            if winner[0] == first:
                self.cells[winner] = cell._replace(shown_first=cell.shown_first + 1)
            else:
                self.cells[winner] = cell._replace(shown_second=cell.shown_second + 1)


def tally(votes: Iterable[JudgeVote]) -> Tally:
    """Count votes."""
    counted = Tally()
    for vote in votes:
        counted.add(vote)
    return counted
