"""One attempt at a branch: its events by seq, and whether it has ended.

Slices may come twice, out of order, and with gaps. The same event again is ignored; another event under the same seq is a
conflict, and the first one wins.
"""

from collections.abc import Sequence
from typing import NamedTuple

from agents.summarize.branch import BranchEnd, end_status, raw_digest
from agents.summarize.events import Answer, Failure, Kept, keep_all
from schemas.events import AgentEvents, BranchInfo, EndStatus, plain_events

ENDING = frozenset({Answer, Failure})
"""What an event says that ends an attempt."""


class View(NamedTuple):
    """The events of an attempt up to some moment."""

    events: list[Kept]
    """In the order of their seq."""
    last_seq: int | None
    gaps: tuple[int, ...]
    status: EndStatus | None
    """How it had ended by then; None when it had not."""
    end: BranchEnd | None
    """What the producer had said of its end by then."""
    raw_digest: str
    """Of the events."""

    @property
    def complete(self) -> bool:
        """Whether it had ended and nothing was missing."""
        return self.status is not None and not self.gaps


class Attempt:
    """The facts of one attempt."""

    __slots__ = ("_ended_at", "_view", "end", "info", "latest", "said_last_seq", "seqs", "terminal")

    def __init__(self) -> None:
        self.seqs: dict[int, Kept] = {}
        self.info: BranchInfo | None = None
        self.end: BranchEnd | None = None
        self._ended_at = 0
        self.said_last_seq: int | None = None
        self.latest = 0
        """When its last fact was appended."""
        self.terminal = False
        """Whether an event says that it ended."""
        self._view: View | None = None

    def add(self, piece: AgentEvents, at: int, *, redacting: bool) -> int:
        """Take a slice in; returns how many of its events conflict with earlier ones. Raises ValueError for bad event data."""
        kept = keep_all(plain_events(piece), at, redacting=redacting)  # all or nothing: a bad event spoils its slice
        self._view = None
        seqs = range(piece.first_seq, piece.first_seq + len(kept))
        conflicts = 0
        if self.seqs.keys().isdisjoint(seqs):
            self.seqs.update(zip(seqs, kept, strict=True))
        else:
            held = [self.seqs.setdefault(seq, event) for seq, event in zip(seqs, kept, strict=True)]
            conflicts = sum(before.digest != event.digest for before, event in zip(held, kept, strict=True))
            kept = [event for before, event in zip(held, kept, strict=True) if before is event]
        if kept:
            self.latest = max(self.latest, at)
            self.terminal = self.terminal or not ENDING.isdisjoint({type(event.body) for event in kept})
        if self.info is None:
            self.info = piece.branch
        if piece.ended and self.end is None:
            self.end = BranchEnd(piece.status, piece.error, piece.workspace)
            self._ended_at = at
            self.said_last_seq = piece.last_seq
            self.latest = max(self.latest, at)
        return conflicts

    @property
    def may_have_ended(self) -> bool:
        """Whether anything says that it ended: looked at before the events are."""
        return self.terminal or self.end is not None

    def view(self, until: int | None = None) -> View:
        """What had been appended by `until` (None: everything)."""
        if until is None or until >= self.latest:
            if self._view is None:
                self._view = self._make_view(self.seqs, self.end)
            return self._view
        seqs = {seq: kept for seq, kept in self.seqs.items() if kept.at <= until}
        return self._make_view(seqs, self.end if self._ended_at <= until else None)

    def _make_view(self, seqs: dict[int, Kept], end: BranchEnd | None) -> View:
        highest = max(seqs, default=-1)
        expected = highest if end is None or self.said_last_seq is None else max(highest, self.said_last_seq)
        gaps = () if len(seqs) == expected + 1 else tuple(seq for seq in range(expected + 1) if seq not in seqs)
        events = [seqs[seq] for seq in sorted(seqs)]
        ended = end is not None or self.terminal
        status = end_status(events, end) if ended else None
        return View(events, expected if expected >= 0 else None, gaps, status, end, raw_digest(events))

    def pinned(self, last_seq: int | None, gaps: Sequence[int]) -> list[Kept] | None:
        """The events that a decision pinned, in order; None while some of them have not been read."""
        if last_seq is None:
            return []
        missing = frozenset(gaps)
        try:
            return [self.seqs[seq] for seq in range(last_seq + 1) if seq not in missing]
        except KeyError:
            return None
