"""One attempt at a branch: its events by seq, and whether it has ended.

Slices may come twice, out of order, and with gaps. A repeated event is ignored; a different event under the same seq is
a conflict, and the first one wins.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from agents.conversations.held_text import TextStore
from agents.summarize.branch import BranchEnd, end_status, last_word, n_events, raw_digest
from agents.summarize.event_reader import keep_slice
from agents.summarize.pieces import Piece
from schemas.errors import BraidError
from schemas.events import AgentEvents, BranchInfo, EndStatus, plain_events

MAX_GAPS = 10_000
"""Events of an attempt that may be missing."""


class TooManyGapsError(BraidError):
    """A slice that would leave more events missing than a decision can list."""


class View(NamedTuple):
    """The events of an attempt up to some moment."""

    pieces: list[Piece]
    """In the order of their seq."""
    last_seq: int | None
    gaps: tuple[int, ...]
    status: EndStatus | None
    """How it had ended by then; None if it had not."""
    end: BranchEnd | None
    """The producer's report of its end by then."""
    raw_digest: str
    """Of the events."""
    conflicts: int = 0
    """Events that differ from an earlier one with the same seq."""

    @property
    def complete(self) -> bool:
        """Whether it had ended and no event was missing."""
        return self.status is not None and not self.gaps


class Attempt:
    """The facts of one attempt."""

    __slots__ = (
        "_conflicts",
        "_ended_at",
        "_view",
        "captured",
        "end",
        "info",
        "latest",
        "n_events",
        "pieces",
        "said_last_seq",
        "terminal",
    )

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        """The events, in the order of their seq; each seq once."""
        self.n_events = 0
        self.info: BranchInfo | None = None
        self.end: BranchEnd | None = None
        self._ended_at = 0
        self.said_last_seq: int | None = None
        self.latest = 0
        """When its last fact was appended."""
        self.captured = False
        """Whether the fold of captures writes it, and will write its end."""
        self.terminal = False
        """Whether one of its events ends it."""
        self._view: View | None = None
        self._conflicts: dict[tuple[int, bytes], int] = {}
        """When each conflicting event was first appended, by seq and digest: a repetition is not a second conflict."""

    def add(self, piece: AgentEvents, at: int, *, redacting: bool, texts: TextStore) -> int:
        """Add a slice; return how many of its events conflict with earlier ones. Raises ValueError for bad event data."""
        events, first_seq, ended = plain_events(piece), piece.first_seq, piece.ended
        # A slice is accepted or refused as a whole: one bad event refuses it.
        whole = keep_slice(events, first_seq, at, redacting=redacting, texts=texts)
        self._refuse_gaps(len(events), whole.stop, piece.last_seq if ended else None)
        self._view = None
        conflicts = 0
        fresh = [whole] if events else []
        if events and self.pieces and whole.first_seq < self.pieces[-1].stop:
            known = {seq: self.digest(seq) for seq in range(whole.first_seq, whole.stop)}
            differing = [seq for seq, before in known.items() if before is not None and before != whole.digest(seq)]
            conflicts = len(differing)
            for seq in differing:
                self._conflicts.setdefault((seq, whole.digest(seq)), at)
            runs = _runs([seq for seq, before in known.items() if before is None])
            fresh = [
                keep_slice(
                    events[run.start - first_seq : run.stop - first_seq], run.start, at, redacting=redacting, texts=texts
                )
                for run in runs
            ]  # fmt: skip
        for each in fresh:
            if not self.pieces or self.pieces[-1].first_seq <= each.first_seq:  # nearly always
                self.pieces.append(each)
            else:
                insort(self.pieces, each, key=_first_seq)
            self.n_events += each.stop - each.first_seq
            self.latest = max(self.latest, at)
            self.terminal = self.terminal or last_word([each]) is not None
        if self.info is None:
            self.info = piece.branch
        self.captured = self.captured or piece.captured
        if ended and self.end is None:
            self.end = BranchEnd(piece.status, piece.error, piece.workspace)
            self._ended_at = at
            self.said_last_seq = piece.last_seq
            self.latest = max(self.latest, at)
        return conflicts

    def _refuse_gaps(self, count: int, stop: int, last_seq: int | None) -> None:
        """Raise TooManyGapsError for a slice after which too many events would be missing, because a decision must list
        them all.
        """
        known = self.pieces[-1].stop if self.pieces else 0
        ends = max(known, stop, 0 if last_seq is None else last_seq + 1)
        gaps = ends - self.n_events - count
        if ends > known and gaps > MAX_GAPS:
            raise TooManyGapsError(
                f"{gaps:,} events would be missing before seq {ends - 1:,}; at most {MAX_GAPS:,} of an attempt may be"
            )

    def digest(self, seq: int) -> bytes | None:
        """The digest of the event with this seq; None if it is not known."""
        at = bisect_right(self.pieces, seq, key=_first_seq) - 1
        return self.pieces[at].digest(seq) if at >= 0 and seq < self.pieces[at].stop else None

    @property
    def may_have_ended(self) -> bool:
        """Whether it may have ended: a cheap test before the events are read."""
        return self.terminal or self.end is not None

    def view(self, until: int | None = None) -> View:
        """The part that had been appended by `until` (None: everything)."""
        if until is None or (until >= self.latest and not self._conflicts):
            if self._view is None:
                self._view = self._make_view([*self.pieces], self.end, len(self._conflicts))
            return self._view
        return self._make_view(
            [piece for piece in self.pieces if piece.at <= until],
            self.end if self._ended_at <= until else None,
            sum(at <= until for at in self._conflicts.values()),
        )

    def _make_view(self, pieces: list[Piece], end: BranchEnd | None, conflicts: int) -> View:
        highest = pieces[-1].stop - 1 if pieces else -1
        expected = highest if end is None or self.said_last_seq is None else max(highest, self.said_last_seq)
        gaps: list[int] = []
        seq = 0
        for piece in pieces:
            gaps += range(seq, piece.first_seq)
            seq = piece.stop
        gaps += range(seq, expected + 1)
        status = end_status(last_word(pieces), end) if end is not None or self.terminal else None
        return View(
            pieces, expected if expected >= 0 else None, tuple(gaps), status, end, raw_digest(pieces), conflicts
        )

    def pinned(self, last_seq: int | None, gaps: Sequence[int]) -> list[Piece] | None:
        """The events that a decision pinned, in order; None while some of them have not been read.

        A decision pins whole pieces: all events of a piece arrived together.
        """
        if last_seq is None:
            return []
        missing = frozenset(gaps)
        found = [piece for piece in self.pieces if piece.stop <= last_seq + 1 and piece.first_seq not in missing]
        return found if n_events(found) == last_seq + 1 - len(missing) else None


def _first_seq(piece: Piece) -> int:
    return piece.first_seq


def _runs(seqs: Sequence[int]) -> list[range]:
    """Ascending numbers as ranges without holes."""
    runs: list[range] = []
    for seq in seqs:
        if runs and runs[-1].stop == seq:
            runs[-1] = range(runs[-1].start, seq + 1)
        else:
            runs.append(range(seq, seq + 1))
    return runs
