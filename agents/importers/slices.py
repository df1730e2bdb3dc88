"""Pack single events into slices: contiguous runs of one branch, within limits. All other facts pass through.

Pure. Each piece lists its source items.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from agents.conversations.token_deltas import TokenDeltas, size_of
from agents.facts.fact import Fact, rollout_of
from agents.summarize.output import byte_length
from schemas.events import AgentEvent, AgentEvents

MAX_EVENTS = 64
"""Larger slices gain little, and a crash can lose a whole slice of a running agent."""

MAX_TEXT = 256 * 1024
"""Bytes of events in a slice: a quarter of the limit of a slice."""

MAX_WAITING = 512
"""Maximum number of unfinished slices. The oldest is released first."""

Branch = tuple[str, int, int]
Item = TypeVar("Item")
"""The origin of a fact."""


class Limits(NamedTuple):
    """The limits within which facts share a slice."""

    max_bytes: int
    """Maximum size of a slice."""
    room: int = 0
    """Maximum number of bytes in a slice outside its events."""
    joins_ends: bool = False
    """Whether the end of an attempt joins the slice before it; otherwise it is a slice of its own."""
    older_first: bool = False
    """Whether a new attempt releases the waiting slices of older ones.

    It fences them, so they must be written first.
    """


LINES = Limits(MAX_TEXT, older_first=True)
"""Limits for the lines of a file."""


@dataclass
class Piece(Generic[Item]):
    """A fact that is ready to be written."""

    fact: Fact
    items: tuple[Item, ...]
    """The origins of the fact."""


class _OpenSlice(Generic[Item]):
    """A slice that can still grow."""

    def __init__(self, fact: AgentEvents, weight: int, item: Item) -> None:
        self.first = self.last = fact
        self.events: list[AgentEvent] = list(fact.events)
        self.items = [item]
        self.weight = weight

    def takes(self, fact: AgentEvents, weight: int, max_bytes: int) -> bool:
        """Return whether a fact of the same attempt continues this slice."""
        count = len(self.events)
        return (
            0 < count < MAX_EVENTS
            and (not fact.events or fact.first_seq == self.first.first_seq + count)
            and self.weight + weight <= max_bytes
            and (fact.branch is None or fact.branch == self.first.branch)
        )

    def take(self, fact: AgentEvents, weight: int, item: Item) -> None:
        self.last = fact
        self.events += fact.events
        self.weight += weight
        if self.items[-1] != item:
            self.items.append(item)

    def piece(self) -> Piece[Item]:
        if self.last is self.first:
            return Piece(self.first, tuple(self.items))
        last = self.last
        end = {name: getattr(last, name) for name in ("ended", "last_seq", "status", "error", "workspace")}
        update = {"events": tuple(self.events)} | (end if last.ended else {})
        return Piece(self.first.model_copy(update=update), tuple(self.items))


class SlicePacker(Generic[Item]):
    """Packs events of many branches in any order. Other facts pass through after their rollout's events."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: OrderedDict[Branch, _OpenSlice[Item]] = OrderedDict()

    def add(self, fact: Fact, weight: int, item: Item) -> Iterator[Piece[Item]]:
        """Add a fact that enlarges a slice by `weight` bytes. Yields the pieces that are ready to be written."""
        limits = self._limits
        if not isinstance(fact, AgentEvents) or (not limits.joins_ends and (fact.ended or len(fact.events) != 1)):
            yield from self.flush(rollout_of(fact))
            yield Piece(fact, (item,))
            return
        branch = (fact.rollout_id, fact.branch_index, fact.attempt)
        waiting = self._open.get(branch)
        if waiting is not None and waiting.takes(fact, weight, limits.max_bytes):
            waiting.take(fact, weight, item)
        else:
            yield from self._make_room(branch)
            self._open[branch] = _OpenSlice(fact, limits.room + weight, item)
        if fact.ended:
            yield self._open.pop(branch).piece()

    @property
    def waits(self) -> bool:
        """Return whether there is an unfinished slice."""
        return bool(self._open)

    def _make_room(self, branch: Branch) -> Iterator[Piece[Item]]:
        """Release slices that must not or cannot wait together with a new slice of this branch."""
        if branch in self._open:
            yield self._open.pop(branch).piece()
        if self._limits.older_first and branch[2]:
            for older in [each for each in self._open if each[:2] == branch[:2] and each[2] < branch[2]]:
                yield self._open.pop(older).piece()
        if len(self._open) >= MAX_WAITING:
            yield self._open.popitem(last=False)[1].piece()

    def flush(self, rollout_id: str | None = None) -> Iterator[Piece[Item]]:
        """Release the waiting slices of one rollout, or all."""
        for branch in [branch for branch in self._open if rollout_id in (None, branch[0])]:
            yield self._open.pop(branch).piece()


def with_deltas(deltas: TokenDeltas, fact: AgentEvents) -> AgentEvents:
    """Return a slice with its calls' prompts as differences."""
    if all(event.tokens is None for event in fact.events):
        return fact
    place = (fact.rollout_id, fact.branch_index, fact.attempt)
    return fact.model_copy(update={"events": tuple([deltas.shrunk(place, event) for event in fact.events])})


def fitting(fact: AgentEvents) -> AgentEvents:
    """Return a slice with complete prompts. Tokens that do not fit into any slice are omitted."""
    place = (fact.rollout_id, fact.branch_index, fact.attempt)
    return fact.model_copy(update={"events": tuple([TokenDeltas().shrunk(place, event) for event in fact.events])})


class Slicer:
    """Packs the facts of files."""

    def __init__(self) -> None:
        self._packer: SlicePacker[None] = SlicePacker(LINES)
        self._deltas = TokenDeltas()

    def add(self, fact: Fact) -> Iterable[Fact]:
        """Add a fact and return the facts that are ready to be written."""
        if isinstance(fact, AgentEvents):
            fact = with_deltas(self._deltas, fact)
        single = isinstance(fact, AgentEvents) and len(fact.events) == 1
        if not single and not self._packer.waits:  # whole branches arrive like this
            return (fact,)
        weight = _size(fact.events[0]) if isinstance(fact, AgentEvents) and single else 0
        return (piece.fact for piece in self._packer.add(fact, weight, None))

    def flush(self) -> Iterator[Fact]:
        """Release all waiting slices."""
        return (piece.fact for piece in self._packer.flush())


def _size(event: AgentEvent) -> int:
    """Return the size of an event in a slice; it may be too high, not too low."""
    texts = byte_length(event.data) + 4 * (len(event.trace_id) + len(event.event) + len(event.channel))
    return texts + size_of(event.tokens) + 64
