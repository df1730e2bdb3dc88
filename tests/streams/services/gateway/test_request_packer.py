"""Events become slices that keep their order, their limits and their items."""

import random

import pytest

from agents.importers.slices import Piece
from schemas.events import AgentEvent, AgentEvents, BranchInfo
from schemas.lifecycle import CloseRequested, Lifecycle
from streams.log.topics import SLICE_LIMIT
from streams.log.wire import Codec
from streams.services.gateway.problems import ItemError, Position
from streams.services.gateway.request_packer import Packer

CODEC = Codec()


def event(seq: int, *, size: int = 0, branch: int = 0, text: str = "x", **more: object) -> AgentEvents:
    happened = AgentEvent(channel="tool", event="tool_result", data=f'{{"output":"{text * size}"}}')
    return AgentEvents.model_validate(
        {"rollout_id": "r", "branch_index": branch, "first_seq": seq, "events": (happened,), **more}
    )


def pack(facts: list[AgentEvents]) -> list[Piece[Position]]:
    packer = Packer(CODEC.encode)
    ready = [piece for number, fact in enumerate(facts) for piece in packer.add([fact], Position(number))]
    return [*ready, *packer.flush()]


def spans(pieces: list[Piece[Position]]) -> list[tuple[int, int]]:
    return [(piece.fact.first_seq, len(piece.fact.events)) for piece in pieces if isinstance(piece.fact, AgentEvents)]


def test_contiguous_events_share_a_slice() -> None:
    """And the slice knows its items."""
    (piece,) = pack([event(seq) for seq in (3, 4, 5)])
    assert spans([piece]) == [(3, 3)]
    assert piece.items == (Position(0), Position(1), Position(2))


def test_a_gap_or_a_step_back_begins_a_new_slice() -> None:
    """A slice has no gaps."""
    assert spans(pack([event(seq) for seq in (0, 1, 3, 4, 2)])) == [(0, 2), (3, 2), (2, 1)]


def test_branches_and_attempts_do_not_mix() -> None:
    """However they are interleaved."""
    facts = [
        event(seq, branch=branch, attempt=attempt) for seq in range(3) for branch in range(2) for attempt in range(2)
    ]
    pieces = pack(facts)
    assert spans(pieces) == [(0, 3)] * 4
    assert len({(piece.fact.branch_index, piece.fact.attempt) for piece in pieces}) == 4


@pytest.mark.parametrize("text", ["x", "ä", "€", "\U0001f600"])
def test_no_slice_is_over_its_limit(text: str) -> None:
    """Bytes count, not characters."""
    draw = random.Random(7)
    pieces = pack([event(seq, size=draw.choice([10, 1000, 100_000, 200_000]), text=text) for seq in range(60)])
    sizes = [len(CODEC.encode(piece.fact)) for piece in pieces]
    assert max(sizes) <= SLICE_LIMIT
    assert sum(count for _, count in spans(pieces)) == 60
    assert len(pieces) < 40


def test_an_event_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    """The limit is that of the bytes in the log."""
    room = SLICE_LIMIT - len(CODEC.encode(event(0, size=0)))
    largest = next(size for size in range(room, 0, -1) if len(CODEC.encode(event(0, size=size))) <= SLICE_LIMIT)
    assert len(pack([event(0, size=largest)])) == 1
    with pytest.raises(ItemError) as caught:
        pack([event(0, size=largest + 1)])
    assert caught.value.status == 413


def test_a_refused_event_leaves_the_others_in_place() -> None:
    """The items that were packed before it are still there."""
    packer = Packer(CODEC.encode)
    packer.add([event(0)], Position(0))
    with pytest.raises(ItemError):
        packer.add([event(1, size=2 * SLICE_LIMIT)], Position(1))
    packer.add([event(2)], Position(2))
    assert not list(packer.flush("another rollout"))
    assert len(list(packer.flush())) == 1


def test_the_end_closes_the_slice_that_it_follows() -> None:
    """One record says both; what comes after is another."""
    ended = AgentEvents(rollout_id="r", branch_index=0, ended=True, status="answered", last_seq=1)
    pieces = pack([event(0), event(1), ended, event(2)])
    assert spans(pieces) == [(0, 2), (2, 1)]
    assert (pieces[0].fact.ended, pieces[0].fact.status, pieces[0].fact.last_seq) == (True, "answered", 1)
    assert pieces[1].fact.ended is False


def test_a_whole_branch_in_one_item_is_split_where_it_must_be() -> None:
    """The facts about the branch are on its first slice, the end on its last."""
    events = tuple(
        AgentEvent(channel="tool", event="tool_result", data=f'{{"output":"{"x" * 300_000}"}}') for _ in range(10)
    )
    whole = AgentEvents(
        rollout_id="r",
        branch_index=0,
        events=events,
        ended=True,
        status="answered",
        last_seq=9,
        branch=BranchInfo(seed=1),
    )
    pieces = pack([whole])
    assert spans(pieces) == [(0, 3), (3, 3), (6, 3), (9, 1)]
    assert [piece.fact.ended for piece in pieces] == [False, False, False, True]
    assert [piece.fact.branch is not None for piece in pieces] == [True, False, False, False]
    assert {piece.items for piece in pieces} == {(Position(0),)}


def test_other_facts_come_after_the_events_before_them() -> None:
    """An item that settles a rollout must not overtake its events."""
    packer = Packer(CODEC.encode)
    assert packer.add([event(0)], Position(0)) == []
    close = Lifecycle(close_requested=CloseRequested(rollout_id="r"))
    assert [type(piece.fact).__name__ for piece in packer.add([close], Position(1))] == ["AgentEvents", "Lifecycle"]


def test_many_branches_do_not_wait_for_ever() -> None:
    """The branch that waited longest is let go when too many have an open slice."""
    packer = Packer(CODEC.encode)
    ready = [piece for branch in range(600) for piece in packer.add([event(0, branch=branch)], Position(branch))]
    assert [piece.fact.branch_index for piece in ready] == list(range(88))
