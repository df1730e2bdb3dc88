"""The facts of one request, weighed and packed into slices that are as large as a slice may be.

Pure. Each piece has its items, so that the broker's answer about a record can be returned for each of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from agents.conversations.token_deltas import TokenDeltas, size_of
from agents.facts.fact import Fact
from agents.importers.slices import Limits, Piece, SlicePacker, with_deltas
from schemas.base import Record
from schemas.events import AgentEvent, AgentEvents
from streams.log.topics import BY_RECORD, SLICE_LIMIT
from streams.services.gateway.problems import BAD_CONTENT, TOO_LARGE, ItemError, Position

ROOM = 2048
"""Bytes of a slice that are no events, at most: the schema's header, an id of 256 characters, some numbers."""

EVENT_ROOM = 64
"""Most bytes of an event apart from its text."""

LIMITS = Limits(SLICE_LIMIT, ROOM, joins_ends=True)

Encode = Callable[[Record], bytes]


class _Weighed(NamedTuple):
    fact: Fact
    weight: int


class Packer:
    """Packs the facts of one request. `encode` returns the wire form of a record."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._packer: SlicePacker[Position] = SlicePacker(LIMITS)
        self._deltas = TokenDeltas()

    def add(self, facts: Sequence[Fact], at: Position) -> list[Piece[Position]]:
        """Add the facts of one item, all or none; return the complete pieces. Raises ItemError."""
        weighed = [weighed for fact in facts for weighed in self._weigh(self._with_deltas(fact))]
        return [piece for fact, weight in weighed for piece in self._packer.add(fact, weight, at)]

    def _with_deltas(self, fact: Fact) -> Fact:
        """The fact with prompts as differences to calls of the same request: it is not known here whether other calls
        are on the log.
        """
        return with_deltas(self._deltas, fact) if isinstance(fact, AgentEvents) else fact

    def flush(self, rollout_id: str | None = None) -> Iterator[Piece[Position]]:
        """Return the waiting pieces: of one rollout, or all."""
        return self._packer.flush(rollout_id)

    def _weigh(self, fact: Fact) -> Iterator[_Weighed]:
        """The fact, split into single events if it has several, with the most bytes that each adds to a slice."""
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
        except (ValueError, TypeError, OverflowError) as error:  # pydantic accepts it and Avro does not: long integers
            raise ItemError(BAD_CONTENT, "", f"a value does not fit its field: {error}") from None
        if size > limit:
            raise ItemError(
                TOO_LARGE, "event" if isinstance(fact, AgentEvents) else "", f"{size} bytes; the limit is {limit}"
            )
        return size


def _singles(fact: AgentEvents) -> list[AgentEvents]:
    """One slice per event: facts about the branch with the first, the end with the last."""
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
    return (
        EVENT_ROOM + size_of(event.tokens) + sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
    )
