"""Admission: how well a branch is evidenced, and the category that follows."""

from typing import Any

import pytest

from agents.training.admission import both
from schemas.emission import NEWEST_VERSION, EmissionConfig
from schemas.training import Admission
from tests.agents.formats.rollouts import Line, branch, group_of, opening

KNOWN = {"repo_commit": "c", "tool_manifest_digest": "d"}


def event(index: int, seq: int, kind: str, data: dict[str, Any]) -> Line:
    said = {"channel": "status", "event": kind, "data": data}
    return {"type": "event", "rollout_id": "r1", "branch_index": index, "seq": seq, "event": said}


def passing(*, calls: tuple[Any, ...] = (), **more: Any) -> list[Line]:
    """One passing branch; its calls change something, unless there are none."""
    return [opening("r1", 1, **more), *branch("r1", 0, "Done.", passes=True, calls=calls)]


def admission(lines: list[Line], config: EmissionConfig | None = None, version: int = NEWEST_VERSION) -> Admission:
    group = group_of(lines, config=config or EmissionConfig(version=version))
    found = [row.admission for row in group.ppo] or [row.admission for row in group.rejected if row.kind == "ppo"]
    assert found[0] is not None
    return found[0]


@pytest.mark.parametrize(
    ("lines", "score"),
    [
        # complete .25, outcome .20, one verifier of two .10, model .05, no gaps .10, nothing changed .10
        (passing(), 0.8),
        (passing(**KNOWN), 0.9),
        (
            [
                *passing(**KNOWN),
                {"type": "check", "rollout_id": "r1", "branch_index": 0, "name": "lint", "status": "pass"},
            ],
            1.0,
        ),
        # state-changing calls without a policy decision: .10 less
        (passing(calls=({"path": "a"},)), 0.7),
    ],
)
def test_the_score_is_the_sum_of_what_is_known(lines: list[Line], score: float) -> None:
    """Each part of the rule, by itself."""
    assert admission(lines) == Admission(category="train", score=score)


def claiming(kind: str) -> list[Line]:
    """A branch that changed something, with an event of this kind before its answer."""
    lines = passing(calls=({"path": "a"},))
    last = max(line["seq"] for line in lines if line["type"] == "event")
    moved = [line | {"seq": last + 1} if line.get("seq") == last else line for line in lines]
    return [*moved, event(0, last, kind, {"decision": "allow"})]


@pytest.mark.parametrize("kind", ["supervisor_decision", "guardrail_tripwire"])
def test_a_policy_decision_that_an_agent_claims_counts_for_nothing(kind: str) -> None:
    """Version 1 believed it, and keeps its bytes."""
    assert admission(claiming(kind)).score == 0.7
    assert admission(claiming(kind), EmissionConfig(version=1)).score == 0.8


@pytest.mark.parametrize(("status", "score"), [("pass", 0.9), ("fail", 0.9), ("unknown", 0.7)])
def test_a_verdict_named_policy_is_a_policy_decision(status: str, score: float) -> None:
    """Either way another party decided it (and it is a second verifier); unknown decides nothing."""
    policy = {"type": "check", "rollout_id": "r1", "branch_index": 0, "name": "policy", "status": status}
    assert admission([*passing(calls=({"path": "a"},)), policy]).score == score
    assert admission([*passing(calls=({"path": "a"},)), policy | {"name": "other"}]).score == min(score, 0.8)


@pytest.mark.parametrize("kind", ["action_proposed", "await_human_input"])
def test_a_proposal_is_no_decision(kind: str) -> None:
    """A decision that was only proposed or asked for decides nothing, whatever the version."""
    assert admission(claiming(kind), EmissionConfig(version=1)).score == 0.7


def test_calls_without_results_and_gaps_cost() -> None:
    """Half of the state-changing calls have a result: half of .25; a gap in the seqs: .10."""
    lines = passing(calls=({"path": "a"}, {"path": "b"}))
    seqs = [line["seq"] for line in lines if line.get("event", {}).get("event") == "tool_result"]
    assert admission([line for line in lines if line.get("seq") != seqs[0]]).score == pytest.approx(0.7 - 0.125 - 0.1)


def test_thin_evidence_is_for_audit_and_weak_evidence_is_rejected() -> None:
    """Below .6 a row is kept out of training, below .4 it is rejected."""
    lines = passing(calls=({"path": "a"}, {"path": "b"}))
    unanswered = [line for line in lines if line.get("event", {}).get("event") != "tool_result"]
    weak = admission(unanswered)  # the seqs of the results are missing, too
    assert (weak.category, weak.score, weak.reasons) == ("reject", 0.35, ("weak_evidence",))
    seqs = iter(range(len(lines)))
    thin = admission([line | {"seq": next(seqs)} if line["type"] == "event" else line for line in unanswered])
    assert (thin.category, thin.score, thin.reasons) == ("audit_only", 0.45, ("thin_evidence",))


@pytest.mark.parametrize(
    ("build", "category", "reasons"),
    [
        ({"status": "success", "exit_code": 0, "protected_paths_intact": False}, "reject", ("hack_confirmed",)),
        ({"status": "failure", "exit_code": 0}, "quarantine", ("inconsistent_build",)),
    ],
)
def test_hacks_are_rejected_and_contradictions_wait(
    build: dict[str, Any], category: str, reasons: tuple[str, ...]
) -> None:
    """A confirmed hack is never trained on; a verdict that contradicts itself is looked at first."""
    lines = [line for line in passing() if line["type"] != "build"]
    found = admission([*lines, {"type": "build", "rollout_id": "r1", "branch_index": 0, **build}])
    assert (found.category, found.reasons) == (category, reasons)


@pytest.mark.parametrize(
    ("said", "version", "expected"),
    [
        ({"isolation": "weak"}, 2, Admission(category="train", score=0.75, reasons=("weak_verdict",))),
        ({"isolation": "strong"}, 2, Admission(category="train", score=0.8)),
        ({}, 2, Admission(category="train", score=0.8)),
        ({"isolation": "weak"}, 1, Admission(category="train", score=0.8)),
    ],
)
def test_a_weak_verdict_is_half_a_verifier_and_a_reason(
    said: dict[str, str], version: int, expected: Admission
) -> None:
    """Half of .10 less for tests that the work could reach. A verifier that says nothing counts as before, version 1 as ever."""
    lines = [line | said if line["type"] == "build" else line for line in passing()]
    assert admission(lines, version=version) == expected


def test_a_weak_verdict_stays_a_reason_beside_others() -> None:
    """A contradiction is a contradiction, weak or not."""
    lines = [line | {"isolation": "weak", "exit_code": 1} if line["type"] == "build" else line for line in passing()]
    found = admission(lines)
    assert (found.category, found.reasons) == ("quarantine", ("inconsistent_build", "weak_verdict"))


def test_a_secret_that_cannot_be_removed_is_rejected() -> None:
    """The name of a field is structure: what is in it stays, and so the branch stays out."""
    key = "AKIA" + "ABCDEFGHIJKLMNOP"
    group = group_of(passing(calls=({key: 1},)))
    assert (group.sft, group.ppo) == ((), ())
    assert {record.reasons for record in group.rejected if record.kind != "dpo"} == {("reject", "secret_not_removed")}


def test_a_row_of_two_branches_is_as_good_as_the_weaker() -> None:
    """The worse category, the lower score, the reasons of both."""
    one = Admission(category="train", score=0.7)
    other = Admission(category="quarantine", score=0.9, reasons=("inconsistent",))
    assert both(one, other) == Admission(category="quarantine", score=0.7, reasons=("inconsistent",))
