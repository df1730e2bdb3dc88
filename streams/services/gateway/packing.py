"""Events to slices: contiguous runs of one branch, as large as a slice may be. Everything else passes through.

Pure. Each piece knows the items it is made of, so that what the broker says of a record can be said of the items.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from agents.facts.fact import Fact, rollout_of
from agents.importers.slices import MAX_EVENTS
from schemas.base import Record
from schemas.events import AgentEvent, AgentEvents
from streams.log.topics import BY_RECORD, SLICE_LIMIT
from streams.services.gateway.problems import BAD_CONTENT, TOO_LARGE, ItemError, Position

MAX_WAITING = 512
"""Branches with an unfinished slice; the one that has waited longest is let go first."""

ROOM = 2048
"""Bytes of a slice that are no events, at most: the schema's header, an id of 256 characters, some numbers."""

EVENT_ROOM = 64
"""Bytes of an event that are no text, at most."""

Encode = Callable[[Record], bytes]
Branch = tuple[str, int, int]


class Piece(NamedTuple):
    """A fact that is ready to be written."""

    fact: Fact
    items: tuple[Position, ...]
    """What it is made of."""


class _Weighed(NamedTuple):
    fact: Fact
    weight: int


class _Waiting:
    """A slice that can still grow."""

    __slots__ = ("events", "first", "items", "last", "weight")

    def __init__(self, fact: AgentEvents, weight: int, at: Position) -> None:
        self.first = self.last = fact
        self.events: list[AgentEvent] = list(fact.events)
        self.items = [at]
        self.weight = ROOM + weight

    def takes(self, fact: AgentEvents, weight: int) -> bool:
        """Whether a fact of the same attempt continues this slice."""
        follows = not fact.events or not self.events or fact.first_seq == self.first.first_seq + len(self.events)
        fits = len(self.events) < MAX_EVENTS and self.weight + weight <= SLICE_LIMIT
        return bool(self.events) and follows and fits and fact.branch in (None, self.first.branch)

    def take(self, fact: AgentEvents, weight: int, at: Position) -> None:
        self.last = fact
        self.events += fact.events
        self.weight += weight
        if self.items[-1] != at:
            self.items.append(at)

    def piece(self) -> Piece:
        if len(self.events) == 1 and self.last is self.first:
            return Piece(self.first, tuple(self.items))
        end = {name: getattr(self.last, name) for name in ("ended", "last_seq", "status", "error", "workspace")}
        return Piece(self.first.model_copy(update={"events": tuple(self.events), **end}), tuple(self.items))


class Packer:
    """Packs the facts of one request. `encode` gives the wire form of a record."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._waiting: OrderedDict[Branch, _Waiting] = OrderedDict()

    def add(self, facts: Sequence[Fact], at: Position) -> list[Piece]:
        """Take the facts of one item, all or none; returns what is ready. Raises ItemError."""
        weighed = [weighed for fact in facts for weighed in self._weigh(fact)]
        return [piece for fact, weight in weighed for piece in self._place(fact, weight, at)]

    def flush(self, rollout_id: str | None = None) -> Iterator[Piece]:
        """Let go of what waits: of one rollout, or everything."""
        for branch in [branch for branch in self._waiting if rollout_id in (None, branch[0])]:
            yield self._waiting.pop(branch).piece()

    def _place(self, fact: Fact, weight: int, at: Position) -> Iterator[Piece]:
        if not isinstance(fact, AgentEvents):
            yield from self.flush(rollout_of(fact))
            yield Piece(fact, (at,))
            return
        branch = (fact.rollout_id, fact.branch_index, fact.attempt)
        waiting = self._waiting.get(branch)
        if waiting is not None and waiting.takes(fact, weight):
            waiting.take(fact, weight, at)
        else:
            if waiting is not None:
                yield self._waiting.pop(branch).piece()
            elif len(self._waiting) >= MAX_WAITING:
                yield self._waiting.popitem(last=False)[1].piece()
            self._waiting[branch] = _Waiting(fact, weight, at)
        if fact.ended:
            yield self._waiting.pop(branch).piece()

    def _weigh(self, fact: Fact) -> Iterator[_Weighed]:
        """The fact, as single events where it has several, with the bytes that it adds to a slice at most."""
        if not isinstance(fact, AgentEvents):
            yield _Weighed(fact, self._measured(fact, BY_RECORD[type(fact)].max_bytes))
            return
        for single in _singles(fact):
            text = sum(_text_bytes(event) for event in single.events)
            if single.branch is not None or single.ended or text + ROOM > SLICE_LIMIT:
                yield _Weighed(single, self._measured(single, SLICE_LIMIT))
            else:
                yield _Weighed(single, text)

    def _measured(self, fact: Fact, limit: int) -> int:
        try:
            size = len(self._encode(fact))
        except (ValueError, TypeError, OverflowError) as error:  # what pydantic takes and Avro does not: long integers
            raise ItemError(BAD_CONTENT, "", f"a value does not fit its field: {error}") from None
        if size > limit:
            raise ItemError(
                TOO_LARGE, "event" if isinstance(fact, AgentEvents) else "", f"{size} bytes; the limit is {limit}"
            )
        return size


def _singles(fact: AgentEvents) -> list[AgentEvents]:
    """One slice per event: what is known of the branch on the first, the end on the last."""
    if len(fact.events) <= 1:
        return [fact]
    plain: dict[str, Any] = {"ended": False, "last_seq": None, "status": None, "error": None, "workspace": None}
    last = len(fact.events) - 1
    return [
        fact.model_copy(
            update={"first_seq": fact.first_seq + place, "events": (event,)}
            | (plain if place < last else {})
            | ({"branch": None} if place else {})
        )
        for place, event in enumerate(fact.events)
    ]


def _text_bytes(event: AgentEvent) -> int:
    texts = (event.data, event.trace_id, event.parent_trace_id or "", event.channel, event.event)
    return EVENT_ROOM + sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
