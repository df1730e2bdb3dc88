"""Whole branches as rollout-wire and ATIF."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agents.formats.shape import Group
from tests.agents.formats.atif_rules import Trajectory
from tests.agents.formats.conversations import ANSWER, IMAGE, exact, model, result, said
from tests.agents.formats.rollouts import SHAPES, branch, encoded, group_of, left, mixed, opening, rows
from tests.conformance import conformance


@pytest.fixture(scope="module")
def group() -> Group:
    return group_of(mixed())


def validator() -> Any:
    path = conformance("protocol", "schemas", "compliance", "rollout-wire.schema.json")
    return Draft202012Validator(json.loads(path.read_text("utf-8")))


@pytest.mark.parametrize("part", ["branches", "dpo", "ppo"])
def test_rollout_wire_rows_are_valid(part: str, group: Group) -> None:
    """Every record of all three kinds validates against the schema of the protocol."""
    check = validator()
    made = rows("rollout-wire", group, part)
    assert len(made) == {"branches": 3, "dpo": 1, "ppo": 3}[part]
    assert [list(check.iter_errors(row)) for row in made] == [[]] * len(made)
    assert left("rollout-wire", group) == ["same_answer"]


def test_rollout_wire_says_what_it_had_to_fill(group: Group) -> None:
    """Required fields without a known value have a placeholder, and are named."""
    first, second, _ = rows("rollout-wire", group, "branches")
    assert first["filled"] == ["temperature", "session_id"]
    assert (first["objective_status"], first["objective_score"], first["rank"]) == ("pass", 1, 1)
    assert (first["build_result"], second["build_result"]) == ({"status": "pass"}, {"status": "fail"})
    lines = [opening("r1", 1), *branch("r1", 0, None, passes=False)]
    (row,) = rows("rollout-wire", group_of(lines), "branches")
    assert (row["final_answer"], row["filled"]) == ("", ["temperature", "session_id", "final_answer"])
    assert list(validator().iter_errors(row)) == []


def test_rollout_wire_of_unknown_and_unrequired_branches_is_valid() -> None:
    """An unknown status stays unknown; where nothing is required there is none; neither has a score."""
    for more, status in (({}, "unknown"), ({"required": []}, None)):
        lines = [opening("r1", 1, **more), *branch("r1", 0, "a", passes=None)]
        (row,) = rows("rollout-wire", group_of(lines), "branches")
        assert (row.get("objective_status"), "objective_score" in row) == (status, False)
        assert list(validator().iter_errors(row)) == []


def test_rollout_wire_read_back_gives_the_same_conversations(group: Group) -> None:
    """Arguments, parallel calls, answers and outcomes survive the way out and in again."""
    again = group_of(rows("rollout-wire", group, "branches"))
    assert [row.messages[1:] for row in group.sft] == [
        row.messages for row in again.sft
    ]  # the system prompt stays behind
    assert [(row.branch_index, row.reward) for row in again.ppo] == [
        (row.branch_index, row.reward) for row in group.ppo
    ]
    assert encoded(rows("rollout-wire", again, "dpo")) != b""


def test_atif_has_one_step_for_each_turn(group: Group) -> None:
    """Steps count from 1, calls and observations are matched by id, arguments are objects."""
    first = rows("atif", group)[0]
    assert (first["schema_version"], first["trajectory_id"]) == ("ATIF-v1.8", "r1/b0/a0")
    assert [step["step_id"] for step in first["steps"]] == list(range(1, 6))
    assert [step["source"] for step in first["steps"]] == ["system", "user", "agent", "agent", "agent"]
    calls = [call for step in first["steps"] for call in step.get("tool_calls", ())]
    assert [call["arguments"] for call in calls] == list(SHAPES)
    for step in first["steps"][2:4]:
        ids = [call["tool_call_id"] for call in step["tool_calls"]]
        assert [result["source_call_id"] for result in step["observation"]["results"]] == ids
    assert first["steps"][-1]["message"] == "Done."
    assert first["steps"][-1]["timestamp"].endswith("Z")
    assert first["final_metrics"]["total_steps"] == 5
    assert (first["extra"]["objective_status"], first["extra"]["reward"]) == ("pass", 1.0)


def test_atif_wraps_arguments_that_are_no_object() -> None:
    """ATIF takes objects only; a list stays readable inside one."""
    lines = [opening("r1", 1), *branch("r1", 0, "a", passes=True, calls=([1, 2],))]
    (row,) = rows("atif", group_of(lines))
    (call,) = row["steps"][2]["tool_calls"]
    assert call["arguments"] in ({"value": [1, 2]}, {"value": "[1,2]"})


@pytest.mark.parametrize("made", [group_of(mixed()), exact(), exact(fidelity="transcript")])
def test_atif_is_what_its_rules_accept(made: Group) -> None:
    """Every trajectory, of events or of a conversation, has the fields of the format and no others, and comes back the same."""
    found = rows("atif", made)
    assert len(found) == 3
    for row in found:
        assert Trajectory.model_validate(row).model_dump(exclude_unset=True, by_alias=True) == row


def test_atif_of_a_conversation_has_a_step_for_each_message() -> None:
    """With reasoning, results beside their calls, given messages as copied context, and other sequences embedded."""
    row = rows("atif", exact())[0]
    assert [step["source"] for step in row["steps"]] == [
        "system", "user", "agent", "user", "agent", "user", "agent", "user", "agent", "agent",
    ]  # fmt: skip
    assert [step.get("is_copied_context", False) for step in row["steps"]].count(True) == 2
    assert row["steps"][4]["reasoning_content"] == "Files first."
    assert [each["content"] for each in row["steps"][4]["observation"]["results"]] == ["calc.py", "a - b"]
    (embedded,) = row["subagent_trajectories"]
    assert (embedded["trajectory_id"], embedded["agent"]["name"]) == ("r1/b0/a0/s1", "reader")
    assert row["extra"]["fidelity"] == "exact"


@pytest.mark.parametrize(("part", "kept"), [(IMAGE, True), (IMAGE | {"media_type": "image/tiff"}, False)])
def test_atif_names_media_by_their_digests(part: dict[str, Any], kept: bool) -> None:
    """A kind of media that the format does not know keeps the branch out."""
    seen = said("user", "Look:", parts=json.dumps([{"type": "text", "text": "Look:"}, part]))
    group = exact()
    group = replace(group, ppo=(group.ppo[0].model_copy(update={"prompt": (seen,)}), *group.ppo[1:]))
    assert ("not_representable" in left("atif", group)) != kept
    if kept:
        row = rows("atif", group)[0]
        Trajectory.model_validate(row)
        assert row["steps"][0]["message"][1]["source"]["path"] == f"sha256:{IMAGE['digest']}"


def test_a_result_without_its_call_is_a_step_of_its_own() -> None:
    """Nothing that the model saw is dropped."""
    row = rows("atif", exact(completion=(result("call_9", "late"), model(ANSWER))))[0]
    Trajectory.model_validate(row)
    assert row["steps"][4] == {
        "step_id": 5, "source": "system", "message": "", "observation": {"results": [{"content": "late", "extra": {"call_id": "call_9"}}]},
    }  # fmt: skip


def test_a_branch_that_admission_kept_out_is_in_no_trajectory_format() -> None:
    """A branch that must not be trained on does not leave as a trajectory either."""
    lines = [opening("r1", 1), *branch("r1", 0, "a", passes=True)]
    lines[-1] |= {"status": "success", "exit_code": 1}  # says success, exits with 1: inconsistent
    group = group_of(lines)
    assert {record.admission.category for record in group.rejected if record.admission} == {"quarantine"}
    for name, part in (("atif", ""), ("sts", ""), ("rollout-wire", "branches")):
        assert rows(name, group, part) == []
        assert left(name, group) == ["quarantine"]


def test_conformance_branches_become_the_documented_records() -> None:
    """The fixture of two branches gives one preference and two reward records, with the documented hash of its task."""
    path: Path = conformance("rollout-wire", "wasmagent-js", "data-loop", "rollout-branches.v1.jsonl")
    group = group_of([json.loads(line) for line in path.read_text("utf-8").splitlines()])
    assert (len(group.sft), len(group.dpo), len(group.ppo)) == (1, 1, 2)
    (pair,) = rows("rollout-wire", group, "dpo")
    expected = json.loads(path.with_name("dpo-training.v1.jsonl").read_text("utf-8"))
    assert (pair["prompt"], pair["chosen"], pair["rejected"]) == (
        expected["prompt"], expected["chosen"], expected["rejected"],
    )  # fmt: skip
    assert pair["provenance"]["n_gram_hash"] == expected["provenance"]["n_gram_hash"] == "a8fb558cfae2e1e3"
    assert pair["provenance"]["objective_score"] == {"chosen": 1, "rejected": 0}
