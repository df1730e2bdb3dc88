"""Items become facts, with what the path and the query say."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.evidence.keys import generate_key
from agents.importers.line_error import LineError
from agents.trust.trusted_keys import TrustedKey
from agents.trust.verdict_signature import is_signed_by, sign_verdict
from schemas.events import AgentEvent, AgentEvents, BranchInfo
from schemas.judging import JudgeVote
from schemas.lifecycle import RolloutOpened
from schemas.verdicts import BuildVerdict, OutputTail, VisualVerdict
from streams.log.wire import Codec
from streams.services.gateway.bodies import Item
from streams.services.gateway.fact_reader import Ending, EventShape, FactReader, LineShape, Shape, typed
from streams.services.gateway.problems import Position, problem_of
from streams.services.gateway.request_packer import Packer
from streams.services.gateway.voucher import Voucher
from streams.services.web.auth import EVERYBODY, Caller
from tests.examples import shares

PATH = {"rollout_id": "r", "branch_index": 2}
EVENT = {"event": "tool_call", "data": {"toolName": "bash"}}
CODEC = Codec()


KEY, OWN = generate_key("gateway"), generate_key("verifier")
VOUCHER = Voucher(KEY)


def read(
    value: Any,
    shape: Shape,
    *,
    number: int = 0,
    caller: Caller = EVERYBODY,
    redacting: bool = False,
    voucher: Voucher = VOUCHER,
    **item: Any,
) -> list[Any]:
    return FactReader(shape, caller, voucher, redacting=redacting).read(Item(Position(number), value, **item))


def events(*, attempt: int | None = None, first_seq: int | None = None) -> EventShape:
    return EventShape(PATH, attempt=attempt, first_seq=first_seq)


def refused(value: Any, shape: Shape, **options: Any) -> LineError:
    with pytest.raises(LineError) as caught:
        read(value, shape, **options)
    return caught.value


def test_an_event_takes_its_place_from_the_path() -> None:
    """The body needs only the seq and the event."""
    (fact,) = read({"seq": 7, "event": EVENT}, events())
    assert (fact.rollout_id, fact.branch_index, fact.attempt, fact.first_seq) == ("r", 2, 0, 7)
    assert fact.events[0].event == "tool_call"


def test_a_bare_event_is_an_event() -> None:
    """Its seq stands beside its own fields, or follows from first_seq; unknown fields stay with it."""
    (fact,) = read(EVENT | {"seq": 4, "answer": "x"}, events())
    assert fact.first_seq == 4
    assert orjson.loads(fact.events[0].data) == {"answer": "x", "toolName": "bash"}
    (fact,) = read(EVENT, events(first_seq=10, attempt=3), number=5)
    assert (fact.first_seq, fact.attempt) == (15, 3)


def test_first_seq_counts_positions_not_successes() -> None:
    """So a corrected body can be sent again: the others keep their seqs."""
    shape = events(first_seq=0)
    refused({"event": 5}, shape, number=0)
    assert read(EVENT, shape, number=1)[0].first_seq == 1


def test_an_event_without_any_seq_is_told_what_to_do() -> None:
    """Only its sender knows the order across requests."""
    error = refused(EVENT, events())
    assert error.field == "seq"
    assert "first_seq" in error.reason


@pytest.mark.parametrize(
    ("name", "value"), [("rollout_id", "other"), ("branch_index", 3), ("branch_index", "2"), ("rollout_id", 5)]
)
def test_a_body_cannot_contradict_the_path(name: str, value: Any) -> None:
    """Neither beside a bare event nor around one; repeating the path is fine."""
    assert refused({"seq": 0, "event": EVENT, name: value}, events()).field == name
    assert refused(EVENT | {"seq": 0, name: value}, events()).field == name
    assert refused({"status": "success", name: value}, typed("build", PATH)).field == name
    assert read({"seq": 0, "event": EVENT, **PATH}, events())


def test_an_event_may_say_what_is_known_of_its_branch() -> None:
    """Once is enough, usually on the first."""
    said = {"temperature": 0.5, "seed": 7, "session_id": "s", "agent": {"model": "m"}, "task": "t", "observed": "raw"}
    (fact,) = read({"seq": 0, "event": EVENT, **said}, events())
    assert fact.branch.model_dump(exclude_none=True) == said


def test_verdict_lines_do_not_pass_as_events() -> None:
    """The route of events knows events and ends."""
    assert refused({"type": "build", "status": "success"}, events()).field == "type"
    assert read({"type": "end", "status": "failed"}, events())[0].status == "failed"


def test_what_a_caller_may_not_write_is_refused_line_by_line() -> None:
    """A rollout-wire line with a verdict in it is a verdict, too."""
    agent = Caller(frozenset({"agent"}))
    wire = {"rollout_id": "r", "branch_index": 0, "final_answer": "x", "objective_status": "pass"}
    assert problem_of(refused(wire, LineShape(), caller=agent), None).status == 403
    assert (
        problem_of(refused({"type": "build", **PATH, "status": "success"}, LineShape(), caller=agent), None).status
        == 403
    )
    assert read(wire | {"objective_status": None}, LineShape(), caller=agent)


def test_lines_without_seq_are_counted_per_branch() -> None:
    """In the order of the body; a bad one keeps its place."""
    reader = FactReader(LineShape(), EVERYBODY, VOUCHER, redacting=False)
    lines = [
        {"type": "event", "rollout_id": "r", "branch_index": branch, "event": event}
        for branch, event in [(0, EVENT), (0, 5), (0, EVENT), (1, EVENT)]
    ]
    found = []
    for number, line in enumerate(lines):
        try:
            found += reader.read(Item(Position(number), line))
        except LineError:
            continue
    assert [(fact.branch_index, fact.first_seq) for fact in found] == [(0, 0), (0, 2), (1, 0)]


def test_a_cloud_event_fills_in_seq_and_time() -> None:
    """The event's own fields come first."""
    (fact,) = read(EVENT, events(), seq=9, time_ms=5)
    assert (fact.first_seq, fact.events[0].timestamp_ms) == (9, 5)
    (fact,) = read(EVENT | {"seq": 1, "timestampMs": 2}, events(), seq=9, time_ms=5)
    assert (fact.first_seq, fact.events[0].timestamp_ms) == (1, 2)


def test_an_ending_knows_the_last_seq() -> None:
    """From the events of the request, else from first_seq."""
    ending = Ending(PATH, attempt=None, first_seq=4, status=None, error="broke")
    assert ending.line() == {"type": "end", **PATH, "attempt": 0, "last_seq": 3, "status": "failed", "error": "broke"}
    ending.saw(
        [
            AgentEvents(
                rollout_id="r",
                branch_index=2,
                attempt=1,
                first_seq=8,
                events=({"channel": "c", "event": "e", "data": "{}"},),
            )
        ]
    )
    assert (ending.line()["attempt"], ending.line()["last_seq"]) == (1, 8)


def test_redaction_removes_secrets_but_no_ids() -> None:
    """A rollout named like an address keeps its name."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    value = {
        "type": "event",
        "rollout_id": "me@example.com",
        "branch_index": 0,
        "event": {"event": "error", "data": {"error": f"key {secret}"}},
    }
    (fact,) = read(value, LineShape(), redacting=True)
    assert secret not in fact.events[0].data
    assert fact.rollout_id == "me@example.com"


@pytest.mark.parametrize(("name", "value"), [("events", []), ("branch", {}), ("first_seq", 3), ("seq", True)])
def test_what_would_be_lost_or_read_as_something_else_is_refused(name: str, value: Any) -> None:
    """Fields of slices in the log do not belong to a single event; true is no number."""
    line = {"seq": 0, "event": EVENT, name: value}
    assert refused(line, events()).field == name
    assert refused({"type": "event", **PATH, **line}, LineShape()).field == name


def test_numbers_that_no_field_holds_are_errors_of_their_line() -> None:
    """Integers beyond 64 bits, where pydantic would take them and Avro would not."""
    packer = Packer(CODEC.encode)
    for value, shape in [
        ({"status": "success", "exit_code": 2**70}, typed("build", PATH)),
        ({"status": "success", "exit_code": 2**70, "verdict_id": "v"}, typed("build", PATH)),
        ({"seq": 0, "event": EVENT, "seed": -(2**70)}, events()),
    ]:
        with pytest.raises(LineError) as caught:
            packer.add(read(value, shape), Position(0))
        assert problem_of(caught.value, None).status == 422


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = sorted(
    {*AgentEvents.model_fields, *BuildVerdict.model_fields, *VisualVerdict.model_fields, *JudgeVote.model_fields}
    | {
        *RolloutOpened.model_fields,
        *BranchInfo.model_fields,
        *AgentEvent.model_fields,
        "type",
        "seq",
        "event",
        "kind",
        "name",
    }
    | {"tool_call_sequence", "final_answer", "objective_status", "objective_score", "build_result"}
)
TYPES = st.sampled_from(["rollout", "event", "end", "build", "visual", "check", "vote", "cancel", "close"])
GOOD = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES,
        "rollout_id": st.just("r"),
        "branch_index": st.just(2),
        "seq": st.integers(0, 9),
        "event": st.just(EVENT) | st.just("error"),
        "status": st.sampled_from(["success", "pass", "answered"]),
        "verdict": st.just("pass"),
        "name": st.just("n"),
        "a": st.just(0),
        "task": st.text(),
    },
)
OBJECTS = st.builds(lambda good, bad: {**good, **bad}, GOOD, st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))


@settings(max_examples=shares(3), deadline=None)
@given(
    OBJECTS | JSON,
    st.sampled_from(["lines", "events", "build", "visual", "check", "vote", "rollout", "cancel"]),
    st.booleans(),
)
def test_whatever_comes_is_a_fact_or_an_error_of_its_own(value: Any, route: str, redacting: bool) -> None:
    """No JSON value makes reading, packing or encoding fail in another way."""
    shape: Shape = LineShape() if route == "lines" else events(first_seq=0) if route == "events" else typed(route, PATH)
    packer = Packer(CODEC.encode)
    try:
        pieces = packer.add(read(value, shape, redacting=redacting), Position(0))
    except LineError as error:
        problem = problem_of(error, None)
        pieces = []
    else:
        problem = None
    assert problem is None or problem.status in (400, 422)
    assert all(CODEC.encode(piece.fact) for piece in [*pieces, *packer.flush()])


BUILD = BuildVerdict(
    rollout_id="r", branch_index=2, verdict_id="v", status="failure", exit_code=1,
    stderr=OutputTail(text="token ghp_" + "a1B2c3D4e5F6" * 3, digest="0" * 64),
)  # fmt: skip


def test_a_verdict_without_a_signature_is_signed_by_the_gateway() -> None:
    """It vouches for its tokens; one that a verifier signed keeps that signature."""
    (fact,) = read({"status": "success", "exit_code": 0}, typed("build", PATH))
    assert is_signed_by(fact, "gateway", KEY.public)
    signed = sign_verdict(BUILD, OWN)
    assert read(signed.model_dump(mode="json"), typed("build", PATH)) == [signed]


def test_a_signature_over_words_that_are_removed_is_replaced() -> None:
    """The verifier's own would not match any more."""
    signed = sign_verdict(BUILD, OWN).model_dump(mode="json")
    (fact,) = read(signed, typed("build", PATH), redacting=True)
    assert "ghp_" not in fact.stderr.text
    assert is_signed_by(fact, "gateway", KEY.public)
    plain = sign_verdict(BUILD.model_copy(update={"stderr": None}), OWN)
    assert read(plain.model_dump(mode="json"), typed("build", PATH), redacting=True) == [plain]


def test_a_verdict_that_would_not_count_is_refused_at_once() -> None:
    """A foreign signature, or a gateway whose own key is not trusted: the field and the reason, not a dead letter later."""
    voucher = Voucher(KEY, {"gateway": TrustedKey(public_key=KEY.public.hex(), kinds=("build",))})
    assert read({"status": "success", "exit_code": 0}, typed("build", PATH), voucher=voucher)
    foreign = refused(sign_verdict(BUILD, OWN).model_dump(mode="json"), typed("build", PATH), voucher=voucher)
    assert (foreign.field, problem_of(foreign, None).status) == ("signature", 422)
    assert "'verifier'" in foreign.reason
    assert "not for 'visual'" in refused({"verdict": "pass"}, typed("visual", PATH), voucher=voucher).reason


@pytest.mark.parametrize(("role", "may"), [("agent", False), ("operator", True)])
def test_an_agent_does_not_name_the_snapshot_that_is_tested(role: Any, may: bool) -> None:
    """It could be that of a branch that passes: the runner, an operator, names it."""
    end = {"type": "end", **PATH, "workspace": {"uri": "snapshot:0", "digest": "0"}}
    event = {"type": "event", **PATH, "seq": 0, "event": EVENT, "workspace": {"uri": "snapshot:0", "digest": "0"}}
    caller = Caller(frozenset({role}))
    for line in (end, event):
        if may:
            assert read(line, LineShape(), caller=caller)[0].workspace.digest == "0"
            continue
        refusal = refused(line, LineShape(), caller=caller)
        assert problem_of(refusal, None).status == 403
        assert "workspace needs the role operator" in refusal.reason
