"""Runs of LangSmith: merged by id, calls once, feedback as checks."""

import json
import random
from pathlib import Path
from typing import Any

from agents.importers.traces.rollout_book import Grouping
from tests.conformance import conformance
from tests.conftest import Braid
from tests.imports.exact_rows import rows_of
from tests.imports.importing import Read, read_traces
from tests.imports.told import heard


def sample() -> Path:
    return conformance("imports", "langsmith", "runs.jsonl")


def run(name: str, kind: str = "chain", parent: str | None = None, at: int = 0, **more: Any) -> dict[str, Any]:
    made = {
        "id": name, "trace_id": "t", "run_type": kind, "name": name, "start_time": f"2026-01-01T00:00:{at:02}.000001",
        "end_time": f"2026-01-01T00:00:{at + 1:02}", "inputs": {}, "outputs": {},
    }  # fmt: skip
    return made | ({"parent_run_id": parent} if parent else {}) | more


def llm(name: str, sent: list[Any], said: Any, **more: Any) -> dict[str, Any]:
    return run(name, "llm", inputs={"messages": sent}, outputs={"choices": [{"message": said}]}, **more)


def read_runs(folder: Path, *values: Any, **more: Any) -> Read:
    file = folder / "runs.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return read_traces("langsmith", file, **more)


HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "hello"}


def test_the_order_of_runs_changes_nothing(tmp_path: Path) -> None:
    lines = sample().read_text().splitlines(keepends=True)
    found = set()
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        (tmp_path / "runs.jsonl").write_text("".join(lines))
        found.add(read_traces("langsmith", tmp_path / "runs.jsonl").text)
    assert found == {read_traces("langsmith", sample()).text}


def test_a_run_that_is_posted_and_patched_is_one(tmp_path: Path) -> None:
    whole = llm("a", [HI], HELLO)
    began = {name: value for name, value in whole.items() if name not in ("outputs", "end_time")}
    ended = {name: whole[name] for name in ("id", "trace_id", "outputs", "end_time")}
    read = read_runs(tmp_path, {"post": [began], "patch": []}, {"patch": [ended]})
    (call,) = heard(line["event"] for line in read.of("event"))
    assert call.response is not None
    assert read.of("end")[0]["status"] == "answered"


def test_sessions_of_one_task_are_branches() -> None:
    read = read_traces("langsmith", sample(), grouping=Grouping(group_by="task"))
    assert (read.found.rollouts, read.found.branches) == (1, 2)


def test_an_example_in_a_session_is_a_rollout_and_its_traces_are_branches(tmp_path: Path) -> None:
    runs = [
        run(f"r{number}", trace_id=f"r{number}", reference_example_id="e1", session_name=session)
        for number, session in enumerate(("one", "one", "two"))
    ]
    calls = [llm(f"c{number}", [HI], HELLO, parent=f"r{number}", trace_id=f"r{number}") for number in range(3)]
    read = read_runs(tmp_path, *runs, *calls)
    assert (read.found.rollouts, read.found.branches) == (2, 3)


def test_feedback_becomes_checks(tmp_path: Path) -> None:
    stats = {"right": {"n": 1, "avg": 1.0}, "fast": {"n": 2, "avg": 0.5}, "safe": {"n": 1, "avg": 0}}
    read = read_runs(tmp_path, llm("a", [HI], HELLO, feedback_stats=stats))
    assert [(each["name"], each["status"]) for each in read.of("check")] == [
        ("right", "pass"),
        ("fast", "unknown"),
        ("safe", "fail"),
    ]
    told = [{"key": "right", "score": True, "comment": "well done"}]
    (check,) = read_runs(tmp_path, llm("a", [HI], HELLO, feedback=told)).of("check")
    assert (check["status"], check["hint"]) == ("pass", "well done")


def test_feedback_of_a_run_that_its_provider_failed_is_no_verdict(tmp_path: Path) -> None:
    failed = llm("a", [HI], None, error="Error code: 529 - overloaded", feedback_stats={"right": {"n": 1, "avg": 0}})
    read = read_runs(tmp_path, failed)
    assert read.of("end")[0]["status"] == "infra_error"
    assert not read.of("check")


def test_a_wrapped_client_inside_of_a_model_tells_its_call_again(tmp_path: Path) -> None:
    read = read_runs(tmp_path, llm("a", [HI], HELLO, at=1), llm("b", [HI], HELLO, parent="a", at=2))
    assert len(read.events("model_call")) == 1


def test_messages_of_every_shape_are_read(tmp_path: Path) -> None:
    constructor = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "HumanMessage"],
        "kwargs": {"content": "1"},
    }
    shapes = [
        constructor,
        {"type": "ai", "data": {"content": "2"}},
        ["user", "3"],
        {"type": "ai", "content": "4"},
        {"role": "user", "content": "5"},
    ]
    read = read_runs(tmp_path, llm("a", shapes, HELLO))
    (call,) = heard(line["event"] for line in read.of("event"))
    assert [(each["role"], each["content"]) for each in call.sent] == [
        ("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4"), ("user", "5"),
    ]  # fmt: skip


def test_arguments_that_are_no_json_stay_as_the_model_wrote_them(tmp_path: Path, braid: Braid) -> None:
    broken = {
        "type": "ai",
        "content": "",
        "tool_calls": [],
        "invalid_tool_calls": [{"id": "a", "name": "look", "args": '{"at": '}],
    }
    answer = {"type": "tool", "content": "bad arguments", "tool_call_id": "a", "status": "error"}
    generations = {"generations": [[{"text": "", "message": broken}]]}
    first = run("x", "llm", "r", 1, inputs={"messages": [[HI]]}, outputs=generations)
    read = read_runs(tmp_path, run("r"), first, llm("y", [HI, broken, answer], HELLO, parent="r", at=3))
    call = heard(line["event"] for line in read.of("event"))[0]
    assert call.response is not None
    assert call.response["tool_calls"][0]["arguments"] == '{"at": '
    rows = rows_of(read, tmp_path, braid)
    assert {row["reasons"][0] for row in rows.rejected if row["kind"] == "sft"} == {"malformed_arguments"}


def test_items_of_the_responses_api_are_one_response(tmp_path: Path) -> None:
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
    ]
    given = {"input": "hi", "instructions": "Be brief.", "model": "m"}
    read = read_runs(
        tmp_path,
        run("a", "llm", inputs=given, outputs={"output": items, "usage": {"input_tokens": 3, "output_tokens": 2}}),
    )
    (call,) = heard(line["event"] for line in read.of("event"))
    assert [each["role"] for each in call.sent] == ["system", "user"]
    assert call.response is not None
    assert (call.response["reasoning"], call.response["tool_calls"][0]["name"]) == ("Hm.", "look")
    assert call.data["usage"] == {"input": 3, "output": 2}


def test_a_bad_run_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    orphan = {"id": "x", "run_type": "llm", "parent_run_id": "y"}
    read = read_runs(
        tmp_path, {"post": [5, {"run_type": "llm"}, orphan, llm("a", [HI], HELLO)]}, {"id": 3, "run_type": "llm"}
    )
    assert read.found.branches == 1
    assert read.rejected.count == 4
