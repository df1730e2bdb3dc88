"""ATIF and Harbor: steps by their source, results by their call, context that was copied, ends and rewards."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.importers.traces.format import Options
from tests.imports.facts import count
from tests.imports.importing import Read, read_traces

JOB = Path(__file__).parent / "samples" / "harbor" / "job"


def trajectory(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]
    agent = {"name": "a", "version": "1", "model_name": "m"}
    return {"schema_version": "ATIF-v1.8", "session_id": "s", "agent": agent, "steps": numbered, **more}


def write(file: Path, value: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps(value))
    return file


def read(folder: Path, *steps: dict[str, Any], **more: Any) -> Read:
    return read_traces("atif", write(folder / "trajectory.json", trajectory(*steps, **more)))


def user(words: str, **more: Any) -> dict[str, Any]:
    return {"source": "user", "message": words, **more}


def agent(words: str, *calls: str, results: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": words, **more}
    if calls:
        step["tool_calls"] = [
            {"tool_call_id": call, "function_name": "bash", "arguments": {"x": call}} for call in calls
        ]
    if results is not None:
        step["observation"] = {"results": results}
    return step


def result(call: str | None, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {**({"source_call_id": call} if call else {}), "content": content, **more}


def test_a_job_has_a_branch_for_each_trial_and_a_check_for_each_reward() -> None:
    found = read_traces("auto", JOB)
    counts, ends, tokens = count(found.lines)
    assert counts == {
        "rollouts": 3, "branches": 7, "tool_call": 8, "tool_result": 8, "errors": 0, "texts": 13, "user": 3, "final": 4,
        "pass": 2, "fail": 3,
    }  # fmt: skip
    assert ends == {"aborted": 1, "answered": 4, "failed": 1, "infra_error": 1}
    assert tokens == (1458, 265)
    assert set(found.found.formats.values()) == {"harbor"}
    checks = [(line["branch_index"], line["name"], line["status"], line["score"]) for line in found.of("check")]
    assert checks[:4] == [
        (0, "reward", "pass", 1),
        (0, "style", "unknown", 0.5),
        (1, "reward", "fail", 0),
        (2, "reward", "fail", 0),
    ]


def test_a_failure_of_the_provider_has_no_verdict_although_the_file_says_0() -> None:
    found = read_traces("harbor", JOB)
    (failed,) = [line for line in found.of("end") if line["status"] == "infra_error"]
    assert failed["error"].startswith("API Error: 529")
    assert not [line for line in found.of("check") if line["branch_index"] == failed["branch_index"]]
    assert not [data for data in found.events("assistant_message", "final_answer") if "API Error" in str(data)]


def test_pass_at_decides_scores_between_pass_and_fail() -> None:
    found = read_traces("harbor", JOB, options=Options(pass_at=0.5))
    assert [line["status"] for line in found.of("check") if line["name"] == "style"] == ["pass"]


def test_steps_of_a_sub_agent_among_those_of_its_parent_are_told_apart() -> None:
    found = read_traces("atif", JOB / "calc__aaa" / "agent" / "trajectory.json")
    kinds = [line["event"]["event"] for line in found.of("event")]
    assert kinds.count("tool_call") == kinds.count("subagent_tool_call") == 1
    assert found.events("model_done")[-1]["inputTokens"] == 264


def test_context_that_was_copied_is_no_turn(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        user("before", is_copied_context=True),
        agent("I was here", is_copied_context=True),
        user("go"),
        agent("done"),
    )
    assert [data["text"] for data in found.events("context_message")] == ["before"]
    assert found.events("assistant_message") == [{"text": "I was here", "beforeTask": True}]
    assert (found.events("run_start")[0]["task"], found.events("final_answer")[0]["answer"]) == ("go", "done")


def test_calls_that_were_copied_keep_the_branch_out_of_rows(tmp_path: Path) -> None:
    copied = agent("", "a", results=[result("a")], is_copied_context=True)
    found = read(tmp_path, user("go"), copied, agent("done"))
    assert not found.events("tool_call", "tool_result")
    assert found.events("content_left_out")[0]["calls"] == [{"id": "a", "name": "bash", "arguments": {"x": "a"}}]


def test_token_ids_of_every_step_make_the_branch_exact(tmp_path: Path) -> None:
    first = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_token_ids": [1, 2, 3], "completion_token_ids": [4, 5]}
    last = {"prompt_token_ids": [1, 2, 3, 4, 5, 6], "completion_token_ids": [7], "logprobs": [-0.5]}
    found = read(
        tmp_path, user("go"), agent("", "a", results=[result("a")], metrics=first), agent("done", metrics=last)
    )
    calls = found.events("model_call")
    assert [call["tokens"] for call in calls] == [
        {"prompt_ids": [1, 2, 3], "ids": [4, 5]},
        {"prompt_ids": [1, 2, 3, 4, 5, 6], "ids": [7], "logprobs": [-0.5]},
    ]
    assert [data["role"] for data in found.events("message")] == ["user", "assistant", "tool", "assistant"]
    assert all("source" not in data for data in found.events("model_done"))


def test_token_ids_stay_with_their_step_where_another_step_has_none(tmp_path: Path) -> None:
    metrics = {
        "prompt_tokens": 3, "completion_tokens": 2, "prompt_token_ids": list(range(60_000)), "completion_token_ids": [4, 5],
        "logprobs": [-0.5, -0.25],
    }  # fmt: skip
    found = read(tmp_path, user("go"), agent("", "a", results=[result("a")]), agent("done", metrics=metrics))
    done = found.events("model_done")[1]
    assert (done["inputTokens"], done["outputTokens"]) == (3, 2)
    assert done["source"] == {name: metrics[name] for name in ("prompt_token_ids", "completion_token_ids", "logprobs")}
    assert not found.events("model_call")


def test_totals_count_where_steps_say_nothing(tmp_path: Path) -> None:
    totals = {"total_prompt_tokens": 30, "total_completion_tokens": 5, "total_cached_tokens": 10, "total_cost_usd": 0.5}
    found = read(tmp_path, user("go"), agent("", "a", results=[result("a")]), agent("done"), final_metrics=totals)
    done = found.events("model_done")
    assert "inputTokens" not in done[0]
    assert (done[1]["inputTokens"], done[1]["cacheReadTokens"], done[1]["estimatedUsd"]) == (30, 10, 0.5)


def test_results_without_the_id_of_a_call_go_to_the_calls_of_their_step(tmp_path: Path) -> None:
    first = agent("", "a", "b", results=[result(None, "one")])
    found = read(tmp_path, user("go"), first, agent("", "c", results=[result(None, "two")]), agent("done"))
    assert [(data["callId"], data["output"]) for data in found.events("tool_result")] == [("a", "one"), ("c", "two")]


@pytest.mark.parametrize(
    "extra", [{"tool_result_is_error": True}, {"is_error": True}, {"tool_result_metadata": {"is_error": True}}]
)
def test_a_result_is_an_error_where_its_writer_marks_it(tmp_path: Path, extra: dict[str, Any]) -> None:
    found = read(
        tmp_path, user("go"), agent("", "a", "b", results=[result("a", "bad", extra=extra), result("b", "Error: no")])
    )
    assert [data.get("error") for data in found.events("tool_result")] == [{"message": "bad"}, None]


def test_embedded_sub_agents_are_told_after_their_call(tmp_path: Path) -> None:
    inner = trajectory(user("look"), agent("", "x", results=[result("x")]), agent("seen"), trajectory_id="t1")
    step = agent("", "a", results=[result("a", subagent_trajectory_ref=[{"trajectory_id": "t1"}])])
    found = read(tmp_path, user("go"), step, agent("done"), subagent_trajectories=[inner])
    kinds = [line["event"]["event"] for line in found.of("event")]
    assert kinds[kinds.index("subagent_run_start") - 1] == "tool_call"
    assert kinds.count("subagent_tool_call") == 1


def test_a_trajectory_goes_on_in_the_file_that_it_names(tmp_path: Path) -> None:
    more = [user("so far: ...", is_copied_context=True), agent("", "b", results=[result("b")]), agent("done")]
    write(tmp_path / "trajectory.cont-1.json", trajectory(*more))
    step = agent("", "a", results=[result("a")])
    write(tmp_path / "trajectory.json", trajectory(user("go"), step, continued_trajectory_ref="trajectory.cont-1.json"))
    found = read_traces("atif", tmp_path)
    assert (found.found.branches, found.rejected.count) == (1, 0)
    assert len(found.events("context_rewritten")) == 1
    assert [data["callId"] for data in found.events("tool_call")] == ["a", "b"]
    assert found.events("final_answer")[0]["answer"] == "done"


def test_a_continuation_that_is_not_there_is_reported(tmp_path: Path) -> None:
    found = read(tmp_path, user("go"), agent("", "a"), continued_trajectory_ref="trajectory.cont-1.json")
    assert found.rejected.count == 1
    assert [line["status"] for line in found.of("end")] == []


def test_a_bad_step_is_reported_and_the_others_are_told(tmp_path: Path) -> None:
    found = read(tmp_path, user("go"), {"source": "robot", "message": "x"}, agent("", "a", results=[5]), agent("done"))  # type: ignore[list-item]
    assert found.rejected.count == 2
    assert found.events("final_answer")[0]["answer"] == "done"
    assert found.events("unreadable")[0]["position"] == "steps[1]"


def test_trajectories_in_lines_are_branches_of_their_own(tmp_path: Path) -> None:
    lines = [trajectory(user("go"), agent("done")) | {"session_id": name} for name in "ab"]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    found = read_traces("auto", tmp_path / "t.jsonl")
    assert (found.found.rollouts, set(found.found.formats.values())) == (2, {"atif"})
