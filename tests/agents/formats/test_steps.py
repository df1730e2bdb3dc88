"""Branches step by step: what each step did, and only what is known about how it went."""

from itertools import pairwise

from tests.agents.formats.rollouts import SHAPES, branch, group_of, left, mixed, opening, rows


def test_transitions_go_from_turn_to_turn() -> None:
    """Observations grow by the action and what came back; the reward is the branch's, at its end."""
    found = [row for row in rows("rl-transitions", group_of(mixed())) if row["branch_index"] == 0]
    assert [(row["step"], row["done"], row["reward"]) for row in found] == [
        (0, False, None),
        (1, False, None),
        (2, True, 1.0),
    ]
    for before, after in pairwise(found):
        assert after["observation"] == [*before["observation"], *before["action"], *before["next_observation"]]
    assert [said["role"] for said in found[0]["observation"]] == ["system", "user"]
    assert [said["content"] for said in found[1]["next_observation"]] == ["did 1-0", "did 1-1"]
    assert (found[2]["action"][0]["content"], found[2]["next_observation"]) == ("Done.", [])


def test_steps_are_labelled_by_their_tools_and_the_answer_by_its_verdict() -> None:
    """A call that failed is a bad step of a passing branch; the answer of a failing branch is bad, its calls may be good."""
    lines = [opening("r1", 2), *branch("r1", 0, "Yes.", passes=True, calls=(SHAPES[0], {}))]
    lines += branch("r1", 1, "No.", passes=False, calls=({},))
    failed = next(line for line in lines if line.get("event", {}).get("event") == "tool_result")
    failed["event"]["data"]["error"] = {"code": "ENOENT", "message": "no such file"}
    one, other = rows("trl-stepwise", group_of(lines))
    assert one["prompt"] == "Be brief.\n\nDo the thing of r1"
    assert one["labels"] == [False, True, True]
    assert one["completions"][1:] == ['{"name":"write_file","arguments":{}}', "Yes."]
    assert other["labels"] == [True, False]


def test_a_step_that_nobody_knows_about_leaves_its_branch_out() -> None:
    """A call without a result has no label, and none is made up; neither is one for a branch without an outcome."""
    known = {"repo_commit": "c", "tool_manifest_digest": "d"}
    lines = [opening("r1", 1, **known), *branch("r1", 0, "Yes.", passes=True, calls=(SHAPES[0], {}, {}))]
    cut = [
        line | {"seq": line["seq"] - (line["seq"] > 4)} if "seq" in line else line
        for line in lines
        if line.get("seq") != 4
    ]
    assert rows("trl-stepwise", group_of(cut)) == []
    assert left("trl-stepwise", group_of(cut)) == ["unknown_step"]
    unknown = [line for line in lines if line["type"] != "build"]
    assert rows("trl-stepwise", group_of(unknown)) == rows("rl-transitions", group_of(unknown)) == []
