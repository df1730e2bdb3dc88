"""ATIF and Harbor: what their steps mean."""

from pathlib import Path
from typing import Any

import orjson

from tests.imports.importing import Read, read_traces
from tests.imports.test_counts import paths_of


def read(tmp_path: Path, *steps: dict[str, Any], **more: Any) -> Read:
    """Import a trajectory of these steps."""
    value = {
        "schema_version": "ATIF-v1.8", "session_id": "s", "agent": {"name": "a", "version": "1"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)], **more,
    }  # fmt: skip
    place = tmp_path / "trajectory.json"
    place.write_bytes(orjson.dumps(value))
    return read_traces("atif", place)


ASKED = {"source": "user", "message": "Fix it."}
SAID = {"source": "agent", "message": "Done."}
CALL = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}


def test_a_result_is_what_the_model_got(tmp_path: Path) -> None:
    """Harbor's converter adds words of its own to a result; the raw one counts, and the other is kept."""
    raw = {"content": "a.py", "is_error": True}
    extra = {"tool_result_metadata": {"is_error": True, "raw_tool_result": raw}}
    result = {"source_call_id": "c1", "content": "a.py\n\n[error] tool reported failure", "extra": extra}
    step = {"source": "agent", "message": "", "tool_calls": [CALL], "observation": {"results": [result]}}
    (found,) = read(tmp_path, ASKED, step, SAID).events("tool_result")
    assert (found["output"], found["error"], found["callId"]) == ("a.py", {"message": "a.py"}, "c1")
    assert found["source"]["content"] == result["content"]


def test_copied_context_is_no_turn(tmp_path: Path) -> None:
    """Words of an earlier run stand before the task and are not learnt from."""
    copied = SAID | {"message": "I began.", "is_copied_context": True}
    found = read(tmp_path, ASKED | {"is_copied_context": True}, copied, {"source": "user", "message": "Go on."}, SAID)
    assert [each["text"] for each in found.events("assistant_message")] == ["I began."]
    assert found.events("assistant_message")[0]["beforeTask"] is True
    assert found.events("run_start")[0]["task"] == "Go on."
    assert [each["text"] for each in found.events("context_message")] == ["Fix it."]


def test_an_observation_without_a_call_is_shown_to_the_model(tmp_path: Path) -> None:
    """Agents that write commands as text see the output as the next message: it is no result."""
    step = {"source": "agent", "message": "ls", "observation": {"results": [{"content": "a.py"}]}}
    found = read(tmp_path, ASKED, step, SAID)
    assert [each["text"] for each in found.events("context_message")] == ["a.py"]
    assert found.events("tool_result") == []
    assert found.events("final_answer")[0]["answer"] == "Done."


def test_a_sub_agent_stands_where_its_result_is(tmp_path: Path) -> None:
    """Its events have a name of their own, and come before the result that refers to it."""
    refers = {"source_call_id": "c1", "content": "ok", "subagent_trajectory_ref": [{"trajectory_id": "t1"}]}
    step = {"source": "agent", "message": "", "tool_calls": [CALL], "observation": {"results": [refers]}}
    inner = {
        "schema_version": "ATIF-v1.8", "trajectory_id": "t1", "agent": {"name": "helper", "version": "1"},
        "steps": [{"step_id": 1, **ASKED}, {"step_id": 2, **SAID}],
    }  # fmt: skip
    found = read(tmp_path, ASKED, step, SAID, subagent_trajectories=[inner])
    kinds = [line["event"]["event"] for line in found.of("event")]
    assert kinds.index("tool_call") < kinds.index("subagent_final_answer") < kinds.index("tool_result")
    assert next(line["event"]["trace_id"] for line in found.of("event") if "trace_id" in line["event"]) == "helper-0"


def test_a_step_that_cannot_be_read_keeps_its_place(tmp_path: Path) -> None:
    """It is reported with its position, and the rest of the trajectory is there."""
    found = read(tmp_path, ASKED, {"source": "robot", "message": "x"}, SAID)
    assert found.rejected.first == ["trajectory.json: [0]: steps[1].source: unknown: robot"]
    assert found.events("unreadable")[0]["position"] == "steps[1]"
    assert found.events("final_answer")[0]["answer"] == "Done."


def test_trouble_of_the_environment_is_no_verdict(tmp_path: Path) -> None:
    """A trial whose environment did not start ends infra_error, without a check."""
    found = read_traces("harbor", *paths_of("harbor/job-demo/"))
    (broken,) = [line for line in found.of("end") if line["status"] == "infra_error"]
    assert broken["error"].startswith("EnvironmentStartTimeoutError")
    assert broken["branch_index"] not in {line["branch_index"] for line in found.of("check")}


def test_an_agent_that_ran_out_of_time_failed_by_itself(tmp_path: Path) -> None:
    """Its reward counts."""
    trial = tmp_path / "job" / "t__1"
    trial.mkdir(parents=True)
    value = {
        "task_name": "t", "trial_name": "t__1", "exception_info": {"exception_type": "AgentTimeoutError", "exception_message": "60 s"},
        "verifier_result": {"rewards": {"reward": 0.5}}, "agent_result": {"n_input_tokens": 7, "n_output_tokens": 2},
    }  # fmt: skip
    (trial / "result.json").write_bytes(orjson.dumps(value))
    found = read_traces("harbor", tmp_path / "job")
    assert [line["status"] for line in found.of("end")] == ["failed"]
    assert [(line["status"], line["score"]) for line in found.of("check")] == [("unknown", 0.5)]
