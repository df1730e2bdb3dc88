"""The state of a fork according to the log: what is unfinished, where it can be forked from, and that lines and facts
are the same."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.fork.fork_error import ForkError
from agents.fork.history import Job, prefix_of, read_history, read_place, unfinished, whole_turns
from agents.fork.retry import LONGEST_S, wait_s
from agents.importers.line_writer import lines_of
from agents.importers.lines import LineReader
from schemas.closures import Closure
from schemas.events import AgentEvent, AgentEvents, AgentInfo, BranchInfo, Workspace
from schemas.jsontext import compact
from schemas.lifecycle import Lifecycle, RolloutOpened, SummaryOptions

OPENED = Lifecycle(opened=RolloutOpened(rollout_id="r", task="t", branches=3, summarize=(SummaryOptions(tool="*"),)))


def event(kind: str, **data: Any) -> AgentEvent:
    return AgentEvent(channel="tool", event=kind, data=compact(data))


def part(branch: int, attempt: int, first_seq: int, *events: AgentEvent, **end: Any) -> AgentEvents:
    return AgentEvents(rollout_id="r", branch_index=branch, attempt=attempt, first_seq=first_seq, events=events, **end)


def test_what_has_not_ended_is_run_again_as_a_new_attempt() -> None:
    """Ended branches stay, begun ones get the next attempt, those that never began their first."""
    facts = [
        OPENED,
        part(0, 0, 0, ended=True, status="infra_error"),
        part(1, 0, 0, event("x")),
        part(1, 1, 0, event("x")),
    ]
    assert unfinished(read_history(facts, "r"), "r") == [Job(1, 2), Job(2, 0)]
    assert unfinished(read_history(reversed(facts), "r"), "r") == [Job(1, 2), Job(2, 0)]


def test_what_cannot_be_resumed_is_refused() -> None:
    """An unknown rollout, and one for which it is decided what counts."""
    with pytest.raises(ForkError, match="--id r"):
        unfinished(read_history([], "r"), "r")
    with pytest.raises(ForkError, match="settled"):
        unfinished(read_history([OPENED, Closure()], "r"), "r")


TURNS = [
    event("run_start"), event("step_start"), event("tool_call", callId="a"), event("tool_call", callId="b"),
    event("tool_result", callId="b"), event("tool_result", callId="a"), event("step_start"),
    event("tool_call", callId="c"), event("tool_result", callId="c"), event("step_start"), event("final_answer"),
]  # fmt: skip


@pytest.mark.parametrize(("length", "whole"), [(0, 0), (3, 0), (5, 0), (6, 6), (8, 6), (9, 9), (11, 9)])
def test_a_beginning_is_cut_back_to_whole_turns(length: int, whole: int) -> None:
    """Every call in it is answered, and its answer is not part of it."""
    assert whole_turns(TURNS[:length]) == whole


def test_a_prefix_comes_from_the_attempt_that_counts() -> None:
    """The one that ended, else the newest; a gap in it is refused."""
    facts = [OPENED, part(0, 0, 0, *TURNS, ended=True), part(0, 1, 0, *TURNS[:3])]
    assert prefix_of(read_history(facts, "r"), read_place("r/0@7")) == tuple(TURNS[:6])
    gap = [OPENED, part(0, 0, 0, *TURNS[:3]), part(0, 0, 4, *TURNS[4:])]
    with pytest.raises(ForkError, match="missing"):
        prefix_of(read_history(gap, "r"), read_place("r/0@8"))


def test_places_keep_slashes_in_ids() -> None:
    """The last slash and at-sign count."""
    assert read_place("team/run@1/2@33") == ("team/run@1", 2, 33)


@given(st.integers(1, 40), st.none() | st.floats(-5, 1e6), st.text(max_size=8))
def test_waits_are_bounded_and_repeatable(failures: int, after: float | None, who: str) -> None:
    """The same wait for the same branch, never negative, never endless."""
    wait = wait_s(failures, after, who)
    assert wait == wait_s(failures, after, who)
    assert 0 <= wait <= LONGEST_S * 1.3
    if after is not None and 0 <= after <= LONGEST_S:
        assert wait >= after


def test_lines_are_the_facts_again() -> None:
    """Facts that are written to a file read back as the same facts, slice by slice."""
    info = BranchInfo(
        temperature=0.5, seed=3, session_id="s", agent=AgentInfo(name="n", model="m"), observed="summarized"
    )
    kept = Workspace(uri="snapshot:x", digest="x")
    ended = part(
        1,
        2,
        5,
        event("final_answer", answer="é \U0001f600", n=2**60),
        ended=True,
        status="answered",
        workspace=kept,
        last_seq=5,
    )
    reader = LineReader()
    found = [
        fact
        for fact in (OPENED, ended.model_copy(update={"branch": info}))
        for line in lines_of(fact)
        for fact in reader.read(orjson.dumps(line))
    ]
    assert found[0] == OPENED
    assert found[1] == ended.model_copy(
        update={"branch": info, "ended": False, "status": None, "workspace": None, "last_seq": None}
    )
    assert found[2] == ended.model_copy(update={"events": (), "first_seq": 0})
