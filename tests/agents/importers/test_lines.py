"""Lines that go in: every form is read, every fault is named, and nothing unknown is dropped."""

import json

import pytest

from agents.importers.line_error import LineError
from agents.importers.line_writer import lines_of
from agents.importers.lines import LineReader
from agents.importers.slices import MAX_EVENTS, Slicer
from schemas.base import Record
from schemas.codec.body import encode
from schemas.events import AgentEvents, plain_events
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.verdicts import BuildVerdict, CheckVerdict
from tests.conformance import conformance


def read(value: object) -> list[object]:
    return list(LineReader().read(json.dumps(value)))


def one_event(event: dict[str, object]) -> AgentEvents:
    (fact,) = read({"type": "event", "rollout_id": "r", "branch_index": 0, "seq": 4, "event": event})
    assert isinstance(fact, AgentEvents)
    return fact


def test_camel_case_and_snake_case_are_the_same_event() -> None:
    """Both spellings of the common fields are read; data stays as it is."""
    data = {"toolName": "run", "unheard_of": [1, {"x": None}]}
    camel = one_event(
        {"traceId": "t", "parentTraceId": "p", "channel": "tool", "event": "tool_call", "data": data, "timestampMs": 5}
    )
    snake = one_event(
        {
            "trace_id": "t",
            "parent_trace_id": "p",
            "channel": "tool",
            "event": "tool_call",
            "data": data,
            "timestamp_ms": 5,
        }
    )
    assert camel == snake
    assert json.loads(camel.events[0].data) == data


def test_unknown_kinds_and_fields_are_kept() -> None:
    """An event of an unknown kind keeps its kind, and the keys beside its data go into it."""
    event = one_event({"event": "quantum_leap", "data": {"a": 1}, "mood": "blue"}).events[0]
    assert (event.event, json.loads(event.data)) == ("quantum_leap", {"a": 1, "mood": "blue"})


def test_seq_is_the_order_of_lines_when_left_out() -> None:
    """Events without a seq are numbered per branch and attempt, in the order in which they come."""
    reader = LineReader()
    seqs = []
    for branch in (0, 1, 0, 0, 1):
        (fact,) = reader.read_object(
            {"type": "event", "rollout_id": "r", "branch_index": branch, "event": {"event": "status"}}
        )
        assert isinstance(fact, AgentEvents)
        seqs.append((branch, fact.first_seq))
    assert seqs == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)]


def test_a_vote_id_is_a_function_of_what_was_asked() -> None:
    """The same question has the same id whatever the answer; another order or sample has another."""
    line = {
        "type": "vote",
        "rollout_id": "r1",
        "a": 0,
        "b": 2,
        "order": "ab",
        "sample": 0,
        "preferred": "a",
        "judge": "m",
    }
    votes = [read(line | change)[0] for change in ({}, {"preferred": "tie"}, {"order": "ba"}, {"sample": 1})]
    assert all(isinstance(vote, JudgeVote) for vote in votes)
    ids = [vote.vote_id for vote in votes if isinstance(vote, JudgeVote)]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_another_answer_to_the_same_question_needs_a_sample() -> None:
    """It would not count: the first vote with an id does. The same answer again is a repetition, and harmless."""
    reader = LineReader()
    line = {"type": "vote", "rollout_id": "r", "a": 0, "b": 1, "order": "ab", "judge": "m", "preferred": "a"}
    assert reader.read_object(line) == reader.read_object(line)
    with pytest.raises(LineError, match="sample"):
        reader.read_object(line | {"preferred": "b"})
    assert reader.read_object(line | {"preferred": "b", "sample": 1}) != reader.read_object(line)


def test_a_missing_vote_has_a_cause() -> None:
    """`preferred: null` without a cause is unknown, never a tie."""
    (vote,) = read({"type": "vote", "rollout_id": "r", "a": 0, "b": 1, "preferred": None})
    assert isinstance(vote, JudgeVote)
    assert (vote.preferred, vote.cause) == (None, "unknown")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("{", ""),
        ('["a"]', ""),
        ('{"type":"wish","rollout_id":"r"}', "type"),
        ('{"rollout_id":"r"}', "type"),
        ('{"type":"rollout","task":"t"}', "rollout_id"),
        ('{"type":"rollout","rollout_id":"r","task":"t","branches":0}', "branches"),
        ('{"type":"rollout","rollout_id":"r","task":"t","brances":4}', "brances"),
        ('{"type":"event","rollout_id":"r","branch_index":0}', "event"),
        ('{"type":"event","rollout_id":"r","branch_index":"0","event":{"event":"x"}}', "branch_index"),
        ('{"type":"event","rollout_id":"r","branch_index":0,"seq":-1,"event":{"event":"x"}}', "seq"),
        ('{"type":"event","rollout_id":"r","branch_index":0,"event":{"event":"x","data":[]}}', "event.data"),
        ('{"type":"build","rollout_id":"r","branch_index":0,"status":"fine"}', "status"),
        ('{"type":"build","rollout_id":"r","branch_index":0,"status":"success","coverage":1.5}', "coverage"),
        ('{"type":"check","rollout_id":"r","branch_index":0,"status":"pass"}', "name"),
        ('{"type":"vote","rollout_id":"r","a":0,"b":0,"preferred":"a"}', "b"),
        ('{"type":"vote","rollout_id":"r","a":0,"b":1,"preferred":"c"}', "preferred"),
        ('{"type":"vote","rollout_id":"r","a":0,"b":1,"preferred":"a","cause":"timeout"}', "cause"),
        ('{"type":"rollout","rollout_id":"r","task":"t","tools":"no JSON"}', "tools"),
        ('{"type":"check","rollout_id":"r","branch_index":0,"name":"build","status":"pass"}', "name"),
        ('{"type":"build","rollout_id":"r","branch_index":0,"status":"success","exit_code":false}', "exit_code"),
        ('{"type":"build","rollout_id":"r","branch_index":true,"status":"success","exit_code":0}', "branch_index"),
        ('{"type":"rollout","rollout_id":"r","task":"t","tools":{"name":"run"}}', "tools"),
        ('{"type":"build","rollout_id":"r","branch_index":0,"status":"success","exit_code":NaN}', ""),
        ('{"rollout_id":"r","branch_index":0,"final_answer":7}', "final_answer"),
        ("[" * 5000, ""),
    ],
)
def test_a_bad_line_is_refused_with_its_field(line: str, field: str) -> None:
    """An error uses the name that the sender used."""
    with pytest.raises(LineError) as refused:
        LineReader().read(line)
    assert refused.value.field == field


def test_slices_are_contiguous_and_bounded() -> None:
    """Single events are packed by branch, gaps and sizes split them, and nothing overtakes its rollout's events."""
    reader, slicer = LineReader(), Slicer()
    out: list[object] = []
    for seq in [*range(100), 150]:
        (fact,) = reader.read_object(
            {"type": "event", "rollout_id": "r", "branch_index": 0, "seq": seq, "event": {"event": "status"}}
        )
        out += slicer.add(fact)
    (verdict,) = reader.read_object({"type": "build", "rollout_id": "r", "branch_index": 0, "status": "running"})
    out += slicer.add(verdict)
    shapes = [(fact.first_seq, len(fact.events)) for fact in out if isinstance(fact, AgentEvents)]
    assert shapes == [(0, MAX_EVENTS), (64, 36), (150, 1)]
    assert isinstance(out[-1], BuildVerdict)


WIRE = ["wasmagent-js/data-loop/rollout-branches.v1.jsonl", "wasmagent-js/rollouts/simple-coding-task.rollout-branches.jsonl",
        "trace-pipeline/data-loop/rollout-branches.v1.jsonl", "trace-pipeline/golden/rollout-success.v1.jsonl",
        "trace-pipeline/golden/rollout-policy-blocked.v1.jsonl", "trace-pipeline/golden/rollout-repair-success.v1.jsonl"]  # fmt: skip


@pytest.mark.parametrize("name", WIRE)
def test_rollout_wire_of_other_systems_goes_in(name: str) -> None:
    """Every branch becomes one ended slice and the verdict that its score or build result promises."""
    for line in (conformance("rollout-wire") / name).read_text().splitlines():
        piece, verdict = LineReader().read(line)
        wire = json.loads(line)
        assert isinstance(piece, AgentEvents)
        assert isinstance(verdict, BuildVerdict)
        assert piece.ended
        assert piece.branch is not None
        assert piece.branch.task == wire["task"]
        assert (verdict.status, verdict.produced_by) == (
            {1: "success", 0: "failure"}[wire["objective_score"]],
            "import",
        )


def test_the_fixtures_of_the_wire_format_are_accepted_and_refused_as_they_say() -> None:
    """A line that its authors call valid goes in, one that they call invalid does not."""
    fixtures = conformance("protocol", "fixtures")
    assert len(LineReader().read((fixtures / "valid" / "rollout-wire" / "example.json").read_bytes())) == 1
    with pytest.raises(LineError):
        LineReader().read((fixtures / "invalid" / "rollout-wire" / "example.json").read_bytes())


def test_an_explicit_unknown_is_no_verdict() -> None:
    """`objective_status: unknown` stays unknown although a score stands beside it; a running build is no failure."""
    wire = {"rollout_id": "r", "branch_index": 0, "final_answer": "x", "objective_score": 0}
    assert len(read(wire | {"objective_status": "unknown"})) == 1
    _, verdict = read(wire | {"build_result": {"status": "running"}})
    assert isinstance(verdict, BuildVerdict)
    assert verdict.status == "running"


def test_real_agent_events_go_in_without_a_complaint() -> None:
    """8,518 events of a real benchmark run are read, packed and folded; none is refused."""
    from agents.rollouts.rollout import Rollout

    report = json.loads((conformance("agent-events") / "run-B" / "raw.json").read_text())
    reader, slicer = LineReader(), Slicer()
    rollouts: dict[str, Rollout] = {}
    complaints: list[object] = []
    events = 0

    def fold(facts: object) -> None:
        nonlocal events
        for fact in facts:  # type: ignore[attr-defined]
            events += len(fact.events)
            complaints.extend(rollouts.setdefault(fact.rollout_id, Rollout(fact.rollout_id)).add(fact, 0, ("t", 0, 0)))

    for index, cell in enumerate(report["cells"]):
        for event in cell["trace"]["events"]:
            for fact in reader.read_object(
                {"type": "event", "rollout_id": cell["itemId"], "branch_index": index, "event": event}
            ):
                fold(slicer.add(fact))
    fold(slicer.flush())
    assert (events, complaints, len(rollouts)) == (8518, [], 6)


def test_a_lifecycle_line_is_whole() -> None:
    """A rollout line of the contract is read with every field."""
    (fact,) = read(
        {
            "type": "rollout",
            "rollout_id": "r1",
            "task": "t",
            "branches": 4,
            "required": ["build"],
            "deadline_ms": 600000,
            "system_prompt": None,
            "tools": [{"name": "x"}],
            "labels": {"a": "b"},
        }
    )
    assert isinstance(fact, Lifecycle)
    assert fact.opened is not None
    assert (fact.opened.branches, fact.opened.tools, fact.opened.labels) == (4, '[{"name":"x"}]', {"a": "b"})


def test_equal_verdicts_without_an_id_are_told_apart() -> None:
    """The first has the id of its content, each further one another; another input gives the same ids again."""
    line = {"type": "check", "rollout_id": "r", "branch_index": 0, "name": "lint", "status": "pass"}

    def ids() -> list[str]:
        reader = LineReader()
        facts = [fact for status in ("pass", "fail", "pass") for fact in reader.read_object(line | {"status": status})]
        return [fact.verdict_id for fact in facts if isinstance(fact, CheckVerdict)]

    assert (len(set(ids())), ids()) == (3, ids())
    (alone,) = read(line)
    assert isinstance(alone, CheckVerdict)
    assert alone.verdict_id == ids()[0]


def test_a_build_keeps_what_it_says_of_its_isolation() -> None:
    """As a fact, and as the line that is written of it."""
    said = {"type": "build", "rollout_id": "r", "branch_index": 0, "status": "success", "exit_code": 0}
    for isolation in ("strong", "weak", None):
        (fact,) = LineReader().read_object(said | ({} if isolation is None else {"isolation": isolation}))
        assert isinstance(fact, BuildVerdict)
        assert fact.isolation == isolation
        assert lines_of(fact)[0].get("isolation") == isolation


def test_a_line_may_hold_and_release_a_rollout() -> None:
    """The fields that settling looks at are read from rollout and close lines."""
    (opening,) = read({"type": "rollout", "rollout_id": "r", "task": "t", "held": True, "allow_failing": True})
    (release,) = read({"type": "close", "rollout_id": "r", "when_complete": True})
    assert isinstance(opening, Lifecycle)
    assert isinstance(release, Lifecycle)
    assert opening.opened is not None
    assert release.close_requested is not None
    assert (opening.opened.held, opening.opened.allow_failing, release.close_requested.when_complete) == (True,) * 3


def test_an_attempt_that_came_first_is_written_before_the_one_that_fences_it() -> None:
    """A gap in the newer attempt lets its first events go early: those of the older one must not come behind them."""
    reader, slicer = LineReader(), Slicer()
    places = [(0, 0), (1, 0), (1, 2)]
    lines = [
        {
            "type": "event",
            "rollout_id": "r",
            "branch_index": 0,
            "attempt": attempt,
            "seq": seq,
            "event": {"event": "status", "data": {}},
        }
        for attempt, seq in places
    ]
    facts = [ready for line in lines for fact in reader.read(json.dumps(line)) for ready in slicer.add(fact)]
    written = [*facts, *slicer.flush()]
    assert [(fact.attempt, fact.first_seq) for fact in written if isinstance(fact, AgentEvents)] == places


WIRE = {
    "rollout_id": "r", "branch_index": 0, "session_id": "s", "temperature": 0.7, "seed": 3, "model": "m", "task": "t",
    "tool_call_sequence": [
        {"traceId": "t", "event": "thinking_delta", "data": {"delta": "é"}, "timestampMs": 5.0, "mood": "blue"},
        {"tool_name": "run", "arguments": {"a": 1}, "result": "ok"},
    ],
    "final_answer": "42", "build_result": {"status": "passed", "stage": "test", "stdout": "all\n", "stderr": ""},
}  # fmt: skip


def test_the_fold_reads_the_same_facts_of_a_record_without_models() -> None:
    """Its events are plain fields; the bytes in the log are those of models."""
    careful = LineReader().read(json.dumps(WIRE))
    quick = LineReader(for_fold=True).read(json.dumps(WIRE))
    assert isinstance(quick[0], AgentEvents)
    assert isinstance(careful[0], AgentEvents)
    assert quick[0].events == plain_events(careful[0])
    assert [encode(fact) for fact in quick] == [encode(fact) for fact in careful]


def test_a_record_is_what_its_model_makes_of_it() -> None:
    """Records that are made without the model are those that it would make."""
    for fact in read(WIRE):
        assert isinstance(fact, Record)
        assert type(fact).model_validate(fact.model_dump()) == fact


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"rollout_id": "r" * 257}, "rollout_id"),
        ({"branch_index": True}, "branch_index"),
        ({"branch_index": 100_000}, "branch_index"),
        ({"attempt": -1}, "attempt"),
        ({"status": "done"}, "status"),
        ({"temperature": "warm"}, "temperature"),
        ({"seed": 2**63}, "seed"),
        ({"session_id": 5}, "session_id"),
        ({"model": 5}, "agent.model"),
        ({"build_result": {"status": "failed", "stage": "deploy"}}, "stage"),
        ({"build_result": {"status": "failed", "exit_code": "1"}}, "exit_code"),
        ({"build_result": {"status": "failed", "stdout": {"text": 5, "digest": "d"}}}, "stdout.text"),
        ({"build_result": {"status": "failed", "coverage": 2}}, "coverage"),
    ],
)  # fmt: skip
def test_a_wrong_field_of_a_record_is_named(changed: dict[str, object], field: str) -> None:
    """Whether the model is asked or not."""
    with pytest.raises(LineError) as refused:
        read(WIRE | changed)
    assert refused.value.field == field
