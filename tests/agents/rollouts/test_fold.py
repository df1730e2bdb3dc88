"""The fold under everything a log can do: other interleavings, other slices, repetitions, crashes. Always the same bytes."""

import json
import subprocess
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.facts.fact import Fact
from agents.importers.lines import LineReader
from agents.rollouts.branch_records import MOST_BYTES
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.closure import close_now
from agents.rollouts.decision import decide
from agents.rollouts.emission import Emission, emit
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Complaint, Rollout
from agents.rollouts.settlement import settle_now
from agents.rollouts.status import Status, TransitionError
from schemas.closures import Closure, RolloutSettled
from schemas.codec.body import encode
from schemas.emission import EmissionConfig, JudgeConfig
from schemas.events import AgentEvents
from schemas.evidence import AepClosing
from schemas.lifecycle import Lifecycle, RolloutOpened
from streams.log.topics import BY_RECORD, LIMITS
from tests.examples import shares
from tests.plain import plain_copy

CONFIG = EmissionConfig(judge=JudgeConfig(kind="external"))
POLICY = ClosingPolicy(deadline_ms=10_000, judge_deadline_ms=5_000)

Log = dict[str, list[tuple[Fact, int]]]
"""By topic, facts with the time at which they were appended."""


def facts_of(*lines: dict[str, object]) -> list[Fact]:
    reader = LineReader()
    return [fact for line in lines for fact in reader.read(json.dumps({"rollout_id": "r"} | line))]


def topic_of(fact: Fact) -> str:
    return type(fact).__name__


def event(branch: int, kind: str, data: dict[str, object], seq: int, attempt: int = 0) -> dict[str, object]:
    return {
        "type": "event",
        "branch_index": branch,
        "attempt": attempt,
        "seq": seq,
        "event": {"event": kind, "data": data, "timestamp_ms": seq},
    }


def branch_lines(branch: int, answer: str, attempt: int = 0) -> list[dict[str, object]]:
    call = {"toolName": "run", "args": {"n": branch}, "callId": f"c{branch}", "stepIndex": 1}
    return [
        event(branch, "run_start", {"task": "t"}, 0, attempt),
        event(branch, "thinking_delta", {"delta": f"thinking about {branch}", "step": 1}, 1, attempt),
        event(branch, "tool_call", call, 2, attempt),
        event(branch, "tool_result", {"callId": f"c{branch}", "output": "x" * (branch * 900)}, 3, attempt),
        event(branch, "final_answer", {"answer": answer}, 4, attempt),
    ]


def whole_rollout() -> list[Fact]:
    """Three branches (one retried), verdicts both ways, votes for the passing pair, nothing missing."""
    votes = [
        {"type": "vote", "a": 0, "b": 1, "order": order, "sample": sample, "preferred": "a", "judge": "j"}
        for order in ("ab", "ba") for sample in (0, 1)
    ]  # fmt: skip
    return facts_of(
        {"type": "rollout", "task": "t", "branches": 3, "required": ["build"]},
        *branch_lines(0, "good"),
        *branch_lines(1, "fine"),
        event(2, "run_start", {"task": "t"}, 0),
        event(2, "error", {"error": "overloaded_error: 529"}, 1),
        *branch_lines(2, "wrong", attempt=1),
        {"type": "build", "branch_index": 0, "status": "running"},
        {"type": "build", "branch_index": 0, "status": "success", "exit_code": 0},
        {"type": "build", "branch_index": 1, "status": "success", "exit_code": 0},
        {"type": "build", "branch_index": 2, "attempt": 0, "status": "success", "exit_code": 0},
        {"type": "build", "branch_index": 2, "attempt": 1, "status": "failure", "exit_code": 1},
        *votes,
    )


def appended(facts: Iterable[Fact]) -> Log:
    log: Log = {}
    for at, fact in enumerate(facts, 1):
        log.setdefault(topic_of(fact), []).append((fact, at))
    return log


def interleave(log: Log, draw: st.DrawFn | None, data: st.DataObject | None = None) -> Iterable[tuple[Fact, int]]:
    """The facts of all topics: each topic in its order, the topics in any."""
    positions = dict.fromkeys(sorted(log), 0)
    while left := [topic for topic, position in positions.items() if position < len(log[topic])]:
        topic = data.draw(st.sampled_from(left)) if data else left[0]
        yield log[topic][positions[topic]]
        positions[topic] += 1


def fold(facts: Iterable[tuple[Fact, int]]) -> tuple[Rollout, list[Complaint]]:
    rollout, complaints = Rollout("r"), []
    for offset, (fact, at) in enumerate(facts):
        complaints += rollout.add(fact, at, (topic_of(fact), 0, offset))
    return rollout, complaints


def close(log: Log) -> Emission:
    """Let a worker decide on a log that holds everything; the decisions are appended to it."""
    rollout, _ = fold(interleave(log, None))
    now = max(at for facts in log.values() for _, at in facts)
    while rollout.status is not Status.CLOSED:
        decision = decide(rollout, CONFIG, POLICY, now + 20_000, {})
        assert decision is not None
        closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
        log.setdefault("Closure", []).append((closure, now + 1))
        rollout.add(closure, now + 1, ("Closure", 0, 0))
    return emit(rollout)


def bytes_of(emission: Emission) -> list[bytes]:
    return [
        encode(record)
        for record in (*emission.branches, emission.ranking, *emission.rows, *emission.rejected, *emission.evidence)
    ]


def resliced(facts: list[tuple[Fact, int]], data: st.DataObject) -> list[tuple[Fact, int]]:
    """The same events of a topic in other slices: neighbours of one attempt joined at random."""
    out: list[tuple[Fact, int]] = []
    for fact, at in facts:
        last = out[-1][0] if out else None
        assert isinstance(fact, AgentEvents)
        if (
            isinstance(last, AgentEvents) and (last.branch_index, last.attempt) == (fact.branch_index, fact.attempt)
            and last.first_seq + len(last.events) == fact.first_seq and data.draw(st.booleans())
        ):  # fmt: skip
            out[-1] = (last.model_copy(update={"events": last.events + fact.events}), at)
        else:
            out.append((fact, at))
    return out


@given(data=st.data())
@settings(max_examples=shares(0.8), deadline=None)
def test_any_interleaving_slicing_and_repetition_gives_the_same_bytes(data: st.DataObject) -> None:
    """Topics in any order, events in any slices, facts said twice: every sink record is the same, byte for byte."""
    log = appended(whole_rollout())
    expected = bytes_of(close(log))
    changed = dict(log) | {"AgentEvents": resliced(log["AgentEvents"], data)}
    for topic in sorted(changed):
        again = data.draw(st.lists(st.sampled_from(changed[topic]), max_size=3))
        changed[topic] = [*changed[topic], *((fact, 9_999) for fact, _ in again)]
    rollout, _ = fold(interleave(changed, None, data))
    assert rollout.has_closed_facts()
    assert bytes_of(emit(rollout)) == expected


class Seen(NamedTuple):
    emitted: list[list[bytes]]
    closures: int


@given(data=st.data())
@settings(max_examples=shares(0.8), deadline=None)
def test_any_crash_point_gives_the_same_bytes(data: st.DataObject) -> None:
    """A worker that forgets everything at any moment and reads the log again emits what it emitted before."""
    log: Log = appended(whole_rollout()) | {"Closure": []}
    emitted: list[list[bytes]] = []
    for _ in range(data.draw(st.integers(2, 5))):
        rollout, positions = Rollout("r"), dict.fromkeys(sorted(log), 0)
        steps = data.draw(st.integers(1, 60))
        for _ in range(steps):
            left = [topic for topic, position in positions.items() if position < len(log[topic])]
            if left:
                topic = data.draw(st.sampled_from(left))
                fact, at = log[topic][positions[topic]]
                rollout.add(fact, at, (topic, 0, positions[topic]))
                positions[topic] += 1
            decision = decide(rollout, CONFIG, POLICY, None if left else 50_000, {})
            if decision is not None:
                closure = (
                    Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
                )
                log["Closure"].append((closure, 60_000))
            if rollout.has_closed_facts():
                emitted.append(bytes_of(emit(rollout)))
                break
    rollout, _ = fold(interleave(log, None))
    if rollout.has_closed_facts():
        emitted.append(bytes_of(emit(rollout)))
    assert all(each == emitted[0] for each in emitted)


def test_a_newer_attempt_fences_the_older_one() -> None:
    """Events of an attempt that has been replaced are refused, said again they are ignored, and the newer one counts."""
    facts = facts_of(
        *branch_lines(0, "old"),
        *branch_lines(0, "new", attempt=1),
        event(0, "status", {}, 5),
        event(0, "run_start", {"task": "t"}, 0),
    )
    rollout, complaints = fold((fact, at) for at, fact in enumerate(facts))
    assert [complaint.reason for complaint in complaints] == ["fenced"]
    opened = facts_of({"type": "rollout", "task": "t", "branches": 1, "required": []})[0]
    rollout.add(opened, 99, ("Lifecycle", 0, 0))
    settled = decide(rollout, EmissionConfig(), POLICY, None, {})
    assert isinstance(settled, RolloutSettled)
    assert (settled.branches[0].attempt, settled.branches[0].n_events) == (1, 5)


def test_an_older_attempt_that_ended_counts_where_the_newer_never_did() -> None:
    """The newer one is waited for until the deadline; then what had ended counts, with the verdicts about it."""
    facts = facts_of(
        {"type": "rollout", "task": "t", "branches": 1, "required": ["build"], "deadline_ms": 100},
        *branch_lines(0, "old"),
        {"type": "build", "branch_index": 0, "attempt": 0, "status": "success", "exit_code": 0},
        event(0, "run_start", {"task": "t"}, 0, attempt=1),
    )
    rollout, complaints = fold((fact, at) for at, fact in enumerate(facts, 1))
    assert complaints == []
    assert decide(rollout, EmissionConfig(), POLICY, 100, {}) is None
    settled = decide(rollout, EmissionConfig(), POLICY, 101, {})
    assert isinstance(settled, RolloutSettled)
    [pin] = settled.branches
    assert (pin.attempt, pin.status, pin.n_events, len(pin.verdict_ids)) == (0, "answered", 5, 1)


def test_another_event_under_the_same_seq_is_a_conflict() -> None:
    """The first one counts; the second is refused."""
    facts = facts_of(event(0, "status", {"a": 1}, 0), event(0, "status", {"a": 2}, 0), event(0, "status", {"a": 1}, 0))
    rollout, complaints = fold((fact, 1) for fact in facts)
    assert [complaint.reason for complaint in complaints] == ["conflict"]
    assert rollout.branches[0][0].n_events == 1


@pytest.mark.parametrize("far", [{"first_seq": 2**53 - 2}, {"first_seq": 1, "ended": True, "last_seq": 2**53 - 2}])
def test_a_slice_from_far_ahead_is_refused(far: dict[str, Any]) -> None:
    """A decision names every seq that is missing: a wrong number must not make it name them for ever."""
    near, good = facts_of(event(0, "status", {"a": 1}, 0), event(0, "final_answer", {"answer": "x"}, 2))
    assert isinstance(good, AgentEvents)
    rollout, complaints = fold((fact, 1) for fact in (near, good.model_copy(update=far), good))
    assert [(each.reason, "would be missing" in each.message) for each in complaints] == [("bad_event", True)]
    view = rollout.branches[0][0].view()
    assert (view.last_seq, view.gaps, view.status) == (2, (1,), "answered")


def test_gaps_are_pinned_and_never_filled_later() -> None:
    """A fact that had not arrived at the deadline does not count, even when it is read before the decision comes
    back."""
    lines = [line for line in branch_lines(0, "x") if line["seq"] != 2]
    facts = facts_of({"type": "rollout", "task": "t", "branches": 1, "required": [], "deadline_ms": 100}, *lines)
    rollout, _ = fold((fact, at) for at, fact in enumerate(facts, 1))
    assert decide(rollout, EmissionConfig(), POLICY, 100, {}) is None  # 101 is the deadline
    settled = decide(rollout, EmissionConfig(), POLICY, 101, {})
    assert isinstance(settled, RolloutSettled)
    assert (settled.cause, settled.branches[0].gaps) == ("deadline", (2,))
    (missing,) = facts_of(branch_lines(0, "x")[2])
    assert rollout.add(missing, 102, ("AgentEvents", 0, 9)) == []
    strays = rollout.add(Closure(settled=settled), 103, ("Closure", 0, 0))
    assert [(stray.ref[2], stray.reason) for stray in strays] == [(9, "late")]


def test_facts_after_the_deadline_do_not_count_however_late_they_are_read() -> None:
    """A backlog is decided by the log's time, not by the reader's: the late verdict is not in the settling."""
    facts = facts_of(
        {"type": "rollout", "task": "t", "branches": 1, "required": ["build"], "deadline_ms": 50}, *branch_lines(0, "x")
    )
    (late,) = facts_of({"type": "build", "branch_index": 0, "status": "success", "exit_code": 0})
    rollout, _ = fold([*((fact, at) for at, fact in enumerate(facts, 1)), (late, 70)])
    settled = decide(rollout, EmissionConfig(), POLICY, 1_000, {})
    assert isinstance(settled, RolloutSettled)
    assert (settled.cause, settled.decided_at_ms, settled.branches[0].verdict_ids) == ("deadline", 51, ())


def test_without_an_opening_idle_time_settles() -> None:
    """The idle time is measured between facts in the log: what came after a pause that long came too late."""
    facts = facts_of(*branch_lines(0, "x"))
    policy = ClosingPolicy(idle_ms=100)
    rollout, _ = fold(zip(facts, (10, 20, 30, 40, 500), strict=True))
    assert decide(rollout, EmissionConfig(), policy, 139, {}) is None
    settled = decide(rollout, EmissionConfig(), policy, 140, {})
    assert isinstance(settled, RolloutSettled)
    assert (settled.cause, settled.branches[0].n_events, settled.branches[0].status) == ("idle", 4, None)


def test_a_later_decision_has_no_effect() -> None:
    """The first settling in the log counts; a closing that follows from another one is ignored."""
    log = appended(whole_rollout())
    expected = bytes_of(close(log))
    first = log["Closure"][0][0]
    assert isinstance(first, Closure)
    assert first.settled is not None
    other = first.settled.model_copy(update={"settled_id": "other", "branches": ()})
    log["Closure"] = [log["Closure"][0], (Closure(settled=other), 5), log["Closure"][1]]
    rollout, _ = fold(interleave(log, None))
    assert bytes_of(emit(rollout)) == expected


def test_nothing_leads_back() -> None:
    """A closed rollout cannot open again."""
    with pytest.raises(TransitionError):
        Status.CLOSED.to(Status.OPEN)
    with pytest.raises(TransitionError):
        Status.OPEN.to(Status.CLOSED)


def test_a_cancelled_rollout_gives_evidence_and_no_rows() -> None:
    """Branches, ranking and evidence are emitted; every kind of row is left out with that reason."""
    log = appended([*whole_rollout()[:12], *facts_of({"type": "cancel"})])
    emission = close(log)
    assert emission.rows == ()
    assert [(record.kind, record.reasons) for record in emission.rejected] == [
        (kind, ("cancelled",)) for kind in ("sft", "dpo", "ppo")
    ]
    listed = [entry.topic for entry in closing_of(emission).emitted]
    assert listed == ["rollouts.branches.v1"] * len(emission.branches) + ["training.rejected.v1"] * 3


def closing_of(emission: Emission) -> AepClosing:
    closing = emission.evidence[-1].closing
    assert closing is not None
    return closing


def test_the_closing_record_lists_every_branch_and_row_as_they_are_written() -> None:
    """Branches by their index, then rows, then what was left out; each with the digest of its bytes."""
    emission = close(appended(whole_rollout()))
    records = (*emission.branches, *emission.rows, *emission.rejected)
    assert [branch.branch_index for branch in emission.branches] == [0, 1, 2]
    assert closing_of(emission).records == len(emission.branches)
    assert [(entry.topic, entry.record_id, entry.digest) for entry in closing_of(emission).emitted] == [
        (BY_RECORD[type(record)].name, record.record_id, sha256(encode(record)).hexdigest()) for record in records
    ]


def test_an_opening_that_came_too_late_changes_nothing_whenever_it_is_read() -> None:
    """A settling that does not count the opening has the last word, though the opening be read before it."""
    opening, *rest = facts_of(
        {"type": "rollout", "task": "late", "branches": 2, "required": []},
        *branch_lines(0, "good"),
        {"type": "build", "branch_index": 0, "status": "success", "exit_code": 0},
    )
    settled: RolloutSettled | None = None
    bodies = []
    for order in ("never", "before", "after"):
        rollout = Rollout("r")
        for number, fact in enumerate(rest):
            rollout.add(fact, 100 + number, ("t", 0, number))
        settled = settled or settle_now(rollout, CONFIG, POLICY)
        complaints: list[Complaint] = []
        if order == "before":
            complaints += rollout.add(opening, 200, ("opening", 0, 0))
        complaints += rollout.add(Closure(settled=settled), 300, ("c", 0, 0))
        if order == "after":
            complaints += rollout.add(opening, 400, ("opening", 0, 0))
        assert [(each.ref[0], each.reason) for each in complaints] == (
            [] if order == "never" else [("opening", "late")]
        )
        rollout.add(Closure(closed=close_now(rollout)), 500, ("c", 0, 1))
        bodies.append(encode(emit(rollout).ranking))
    assert bodies[0] == bodies[1] == bodies[2]


@pytest.mark.parametrize("tools", ["", "not JSON", '{"name": "run"}', "[" * 200 + "]" * 200, "[1, NaN]"])
def test_an_opening_whose_tools_are_no_array_is_refused(tools: str) -> None:
    """Nothing could be made of the rollout later; without the opening, what its branches did still counts."""
    opened = Lifecycle(opened=RolloutOpened(rollout_id="r", task="t", tools=tools))
    rollout, complaints = fold((fact, 1) for fact in [opened, *facts_of(event(0, "final_answer", {"answer": "x"}, 0))])
    assert [(each.reason, each.message[:7]) for each in complaints] == [("bad_opening", "tools: ")]
    assert rollout.opened is None
    assert rollout.branches[0][0].view().status == "answered"


KEY = "sk-ant-api03-" + "Zx9Qw2Rt7Yp4" * 8


@pytest.mark.parametrize("place", ["toolName", "code", "model", "modelId", "agent"])
def test_a_secret_in_a_name_reaches_no_record(place: str) -> None:
    """Names of tools and models and codes of errors are texts like any other."""
    error = {"code": KEY if place == "code" else "E1", "message": "no"}
    lines = [
        event(0, "run_start", {"task": "t", "agentConfig": {"model": KEY if place == "model" else "m"}}, 0),
        event(0, "model_done", {"modelId": KEY if place == "modelId" else "m", "step": 0}, 1),
        event(0, "tool_call", {"toolName": KEY if place == "toolName" else "run", "args": {}, "callId": "c"}, 2),
        event(0, "tool_result", {"callId": "c", "error": error}, 3),
        event(0, "final_answer", {"answer": "x"}, 4),
    ]
    if place == "agent":
        lines[0] |= {"agent": {"name": KEY, "model": KEY, "version": KEY}, "session_id": KEY}
    opened = {"type": "rollout", "rollout_id": "r", "task": "t", "branches": 1, "required": []}
    emission = close(appended(facts_of(opened, *lines)))
    assert emission.branches[0].redactions
    assert not [body for body in bytes_of(emission) if KEY.encode() in body]


@pytest.mark.parametrize(
    ("said", "error", "status"),
    [
        ("answered", "529 overloaded_error", "infra_error"),
        ("failed", "529 overloaded_error", "infra_error"),
        ("answered", "I gave up", "failed"),
        ("aborted", "529 overloaded_error", "aborted"),
    ],
)
def test_an_error_that_came_last_is_believed_before_the_end(said: str, error: str, status: str) -> None:
    """A producer that always ends a branch does not turn a provider's trouble into an answer, or into the agent's
    failure."""
    lines = [
        event(0, "error", {"message": error}, 0),
        {"type": "end", "rollout_id": "r", "branch_index": 0, "status": said},
    ]
    rollout, _ = fold((fact, 1) for fact in facts_of(*lines))
    assert rollout.branches[0][0].view().status == status


def test_a_rollout_whose_records_are_too_large_is_broken_alone() -> None:
    """Rows are never written without the evidence that would not fit: all of it, or an error that says how large."""
    lines = [
        event(0, "tool_call", {"toolName": "write", "args": {"content": "x" * 900_000}, "callId": f"c{n}"}, n)
        for n in range(10)
    ]
    opened = {"type": "rollout", "rollout_id": "r", "task": "t", "branches": 1, "required": []}
    with pytest.raises(BrokenLogError, match="bytes, and 8,388,544 are allowed"):
        close(appended(facts_of(opened, *lines, event(0, "final_answer", {"answer": "x"}, 10))))
    assert min(LIMITS["sink"], LIMITS["derived"]) > MOST_BYTES


_WITHOUT = """
from tests.agents.rollouts.test_fold import all_bytes
from schemas.codec.avro import COMPILED
assert not COMPILED
print(all_bytes())
"""


def all_bytes() -> str:
    """A digest of all that follows from a rollout."""
    return sha256(b"".join(bytes_of(close(appended(whole_rollout()))))).hexdigest()


def test_without_compiled_modules_the_bytes_are_the_same(tmp_path: Path) -> None:
    """Compiled modules decide nothing of their own."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT], cwd=plain_copy(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == all_bytes()
