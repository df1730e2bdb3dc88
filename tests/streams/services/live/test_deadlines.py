"""Deadlines of open rollouts: each is looked at once for every time it waits for, the earliest first."""

import pytest

from agents.rollouts.rollout import Rollout
from streams.services.live.deadlines import Deadlines
from streams.services.live.open_rollout import OpenRollout


@pytest.fixture
def open_() -> dict[str, OpenRollout]:
    return {name: OpenRollout(Rollout(name), partition=0) for name in ("a", "b")}


def test_a_rollout_is_looked_at_when_its_time_has_come(open_: dict[str, OpenRollout]) -> None:
    """The earliest first, those of one time by their ids."""
    deadlines = Deadlines(open_)
    deadlines.look(open_["b"], 5)
    deadlines.look(open_["a"], 5)
    assert deadlines.due(4) == []
    assert deadlines.due(5) == [open_["a"], open_["b"]]
    assert deadlines.due(5) == []


def test_a_look_that_is_replaced_by_an_earlier_one_is_skipped(open_: dict[str, OpenRollout]) -> None:
    """Also when the same time is asked for again."""
    deadlines = Deadlines(open_)
    deadlines.look(open_["a"], 9)
    deadlines.look(open_["a"], 5)
    assert deadlines.due(6) == [open_["a"]]
    assert deadlines.due(9) == []
    deadlines.look(open_["a"], 8)
    deadlines.look(open_["a"], 9)
    assert deadlines.due(9) == [open_["a"]]


def test_a_finished_rollout_is_not_looked_at(open_: dict[str, OpenRollout]) -> None:
    """Its entries stay until their time comes."""
    deadlines = Deadlines(open_)
    deadlines.look(open_["a"], 5)
    deadlines.await_reading(open_["a"], 5)
    del open_["a"]
    assert deadlines.due(5) == []
    assert deadlines.read(0, 5) == []
    assert deadlines.unread() == []


def test_a_rollout_waits_until_its_partition_has_been_read(open_: dict[str, OpenRollout]) -> None:
    """Only the time that it asked for last counts."""
    deadlines = Deadlines(open_)
    deadlines.await_reading(open_["a"], 5)
    deadlines.await_reading(open_["a"], 7)
    assert deadlines.unread() == [0]
    assert deadlines.read(0, None) == []
    assert deadlines.read(0, 6) == []
    assert deadlines.read(0, 7) == [open_["a"]]
    assert deadlines.unread() == []
