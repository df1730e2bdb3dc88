"""Facts that are valid and make little sense: a rollout of any of them settles, closes and is made, or says why not."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.rollouts.broken_log import BrokenLogError, breaks_alone
from agents.rollouts.decision import decide
from agents.rollouts.emission import emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from agents.rollouts.status import Status
from schemas.base import Record
from schemas.closures import Closure, RolloutClosed, RolloutSettled
from schemas.codec.body import decode, encode
from schemas.emission import EmissionConfig, JudgeConfig
from schemas.events import AgentEvent, AgentEvents
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from tests.examples import shares
from tests.schemas.strategies import records

CONFIG = EmissionConfig(judge=JudgeConfig(kind="scripted", model="rules"))
POLICY = ClosingPolicy(deadline_ms=1000, judge_deadline_ms=1000)
KINDS = (
    "run_start",
    "step_start",
    "text_delta",
    "thinking_delta",
    "model_done",
    "tool_call",
    "tool_result",
    "final_answer",
    "error",
    "?",
)
NAMES = (
    "task",
    "delta",
    "step",
    "stepIndex",
    "modelId",
    "toolName",
    "args",
    "callId",
    "output",
    "answer",
    "error",
    "usage",
    "agentConfig",
    "x",
)

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
data = st.dictionaries(st.sampled_from(NAMES), values, max_size=5).map(json.dumps)
texts = data | st.text(max_size=6) | st.just("[]")


def about(record: Record, branch: int) -> Any:
    """The same fact, about this rollout and one of few branches."""
    update: dict[str, Any] = {"rollout_id": "r"}
    if "branch_index" in type(record).model_fields:
        update |= {"branch_index": branch, "attempt": 0}
    if isinstance(record, JudgeVote):
        update |= {"a": 0, "b": 1}
    return record.model_copy(update=update)


@st.composite
def slices(draw: st.DrawFn) -> AgentEvents:
    """Some events of a branch: kinds and fields that are known, with any values in them."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    events = tuple(
        AgentEvent(channel=draw(st.sampled_from(("text", "tool", "?"))), event=kind, data=draw(texts)) for kind in kinds
    )
    return AgentEvents(
        rollout_id="r", branch_index=draw(st.integers(0, 1)), first_seq=draw(st.integers(0, 4)), events=events
    )


openings = st.builds(about, records(RolloutOpened), st.just(0)).flatmap(
    lambda opened: texts.map(
        lambda tools: Lifecycle(opened=opened.model_copy(update={"tools": tools, "branches": 2, "deadline_ms": 1000}))
    )
)
others = st.one_of(
    [
        st.builds(about, records(model), st.integers(0, 1))
        for model in (BuildVerdict, VisualVerdict, CheckVerdict, JudgeVote)
    ]
)


@settings(max_examples=shares(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(slices() | openings | others, min_size=1, max_size=8))
def test_a_rollout_of_any_facts_is_made(facts: list[Any]) -> None:
    """For any valid records, folding, deciding, asking and emitting end without an error."""
    rollout = Rollout("r", redacting=True)
    for at, fact in enumerate(facts):
        rollout.add(decode(type(fact), encode(fact)), 10 + at, (type(fact).__name__, 0, at))
    if rollout.started_at is None:
        return
    while rollout.status is not Status.CLOSED:
        decision = decide(rollout, CONFIG, POLICY, 10**9, {})
        assert decision is not None
        closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
        rollout.add(closure, 10**9, ("Closure", 0, 0))
        if rollout.status is Status.SETTLED:
            judge_requests(rollout)
    assert {record.rollout_id for record in emit(rollout).branches} <= {"r"}


def test_what_breaks_is_one_rollout() -> None:
    """A settling whose configuration cannot be read is an error that names the rollout, not the end of a worker."""
    rollout = Rollout("r")
    rollout.add(Lifecycle(opened=RolloutOpened(rollout_id="r", task="t", branches=1, deadline_ms=1)), 1, ("t", 0, 0))
    settled = decide(rollout, CONFIG, POLICY, 10**9, {})
    assert isinstance(settled, RolloutSettled)
    strange = settled.model_copy(update={"config": '{"of": "the future"}', "config_digest": "0"})
    rollout.add(Closure(settled=strange), 2, ("Closure", 0, 0))
    said = "rollout r: the configuration that its settling pins cannot be read: of: "
    with pytest.raises(BrokenLogError, match=said):
        decide(rollout, CONFIG, POLICY, 10**9, {})
    rollout.add(Closure(closed=closed_of(strange)), 3, ("Closure", 0, 1))
    with pytest.raises(BrokenLogError, match=said):
        emit(rollout)


def closed_of(settled: RolloutSettled) -> RolloutClosed:
    """A closing that counts no votes."""
    fields = {
        "rollout_id": "r",
        "settled_id": settled.settled_id,
        "cause": "no_judge",
        "decided_at_ms": 3,
        "vote_ids": (),
    }
    return RolloutClosed.model_validate(fields | {"closed_id": "c"})


def test_an_error_that_quotes_a_secret_is_told_without_it() -> None:
    """The log entry that says why a rollout was given up has no key of an agent."""
    key = "sk-ant-api03-" + "Zx9Qw2Rt7Yp4" * 8

    @breaks_alone
    def trips(_rollout: Rollout) -> None:
        raise ValueError(f"cannot read {key}")

    with pytest.raises(BrokenLogError, match="rollout r: ValueError: cannot read ") as told:
        trips(Rollout("r"))
    assert key not in str(told.value)
