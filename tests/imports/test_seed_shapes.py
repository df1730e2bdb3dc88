"""`--shape seed`: the shapes that the seed's importers read, each with a small sample; what a line leaves out stays unknown."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.importers.formats.seed_shapes import SEED_SHAPES
from agents.importers.traces.format import Options
from streams.jobs.imports.trace_import import ImportTracesError
from tests.imports.importing import Read, read_traces

SEED = Options(shape="seed")

LINES: dict[str, list[dict[str, Any]]] = {
    "tau-bench": [
        {"task_id": "t1", "user_query": "hidden", "model_id": "m", "rule_violations": 0, "task_completed": True, "turns": [
            {"role": "user", "content": "Cancel it."}, {"role": "agent", "content": "", "tool_name": "cancel", "tool_args": {"id": 1}},
            {"role": "tool", "content": "", "tool_result": "done"}, {"role": "agent", "content": "It is cancelled."}]},
    ],
    "bfcl": [{"task_id": "b1", "question": "Add.", "functions": [], "calls": [{"name": "add", "arguments": {"a": 1}}], "pass_rate": 0.0}],
    "mcp-atlas": [
        {"task_id": "a1", "user_query": "Find.", "trajectory": [
            {"step_index": 0, "server_id": "git", "tool_name": "log", "arguments": {}, "result": "x"},
            {"step_index": 1, "server_id": "git", "tool_name": "show", "arguments": {}, "error": "no such commit"}],
         "final_answer": "x", "claims_passed": 3, "claims_total": 4},
    ],
    "terminal-bench": [
        {"task_id": "s1", "description": "Build.", "passed": True, "trajectory": [
            {"command": "make", "output": "ok", "exit_code": 0}, {"command": "make test", "output": "no", "exit_code": 2}]},
    ],
    "tool-sandbox": [
        {"task_id": "w1", "user_request": "Wifi off.", "tool_calls": [{"tool_name": "wifi", "arguments": {"on": False}, "result": "ok"}],
         "final_response": "Off.", "success": False},
    ],
    "agent-harm": [
        {"task_id": "h1", "harmful_instruction": "Do harm.", "harm_category": "other", "refused": False, "harmful_actions_taken": 1,
         "actions": [{"action_id": "x", "tool_name": "mail", "arguments": {}, "is_harmful": True, "was_prevented": False}]},
    ],
    "ms-agent-framework": [
        {"run_id": "r1", "workflow_name": "w", "status": "failed", "steps": [
            {"id": "1", "name": "ask", "type": "llm", "status": "completed", "inputs": {"text": "Go."}, "outputs": {"text": "I go."}},
            {"id": "2", "name": "look", "type": "tool", "status": "failed", "inputs": {"k": 1}, "error": "503 service unavailable"}]},
    ],
    "a2a-task": [
        {"task_id": "k1", "session_id": "s", "status": "completed", "messages": [
            {"message_id": "1", "role": "user", "content": "Hello"}, {"message_id": "2", "role": "agent", "content": "Hi."}]},
    ],
    "adk": [
        {"trace_id": "g1", "event_id": "2", "type": "function_call", "timestamp": "2026-01-01T00:00:02Z",
         "content": {"function_name": "look", "args": {"k": 1}}},
        {"trace_id": "g1", "event_id": "1", "type": "model_response", "timestamp": "2026-01-01T00:00:01Z", "content": {"text": "I look."}},
        {"trace_id": "g1", "event_id": "3", "type": "function_response", "timestamp": "2026-01-01T00:00:03Z",
         "content": {"function_name": "look", "response": {"v": 2}}},
        {"trace_id": "g1", "event_id": "4", "type": "final_response", "timestamp": "2026-01-01T00:00:04Z", "content": {"text": "2"}},
    ],
    "oai-agents": [
        {"trace_id": "o1", "span_id": "1", "type": "llm.generate", "name": "g", "started_at": "2026-01-01T00:00:01Z", "ended_at": "",
         "attributes": {"model": "m", "input": "Go.", "output": "I go."}},
        {"trace_id": "o1", "span_id": "2", "type": "tool.call", "name": "look", "started_at": "2026-01-01T00:00:02Z", "ended_at": "",
         "attributes": {"arguments": {"k": 1}, "output": "v"}},
    ],
    "langsmith": [
        {"id": "root", "name": "chain", "run_type": "chain", "start_time": "2026-01-01T00:00:00Z", "inputs": {"input": "Go."}},
        {"id": "llm", "name": "m", "run_type": "llm", "start_time": "2026-01-01T00:00:01Z", "parent_run_id": "root",
         "outputs": {"text": "I go."}},
        {"id": "tool", "name": "look", "run_type": "tool", "start_time": "2026-01-01T00:00:02Z", "parent_run_id": "llm",
         "inputs": {"k": 1}, "outputs": {"output": "v"}},
    ],
    "otel": [
        {"trace_id": "z1", "span_id": "1", "name": "tool.look", "attributes": {"tool_name": "look", "model": "m", "output": "v"}},
        {"trace_id": "z1", "span_id": "2", "name": "guardrail", "attributes": {"triggered": True}},
    ],
}  # fmt: skip
"""A sample of each shape."""

COUNTS = {
    "tau-bench": (1, 1, 0, 1, ["pass", "pass"], {"answered": 1}), "bfcl": (1, 0, 0, 0, ["fail"], {"answered": 1}),
    "mcp-atlas": (2, 2, 1, 1, ["pass"], {"answered": 1}), "terminal-bench": (2, 2, 1, 0, ["success"], {"answered": 1}),
    "tool-sandbox": (1, 1, 0, 1, ["fail"], {"answered": 1}), "agent-harm": (1, 0, 0, 0, ["fail"], {"answered": 1}),
    "ms-agent-framework": (1, 1, 1, 0, [], {"infra_error": 1}), "a2a-task": (0, 0, 0, 1, [], {"answered": 1}),
    "adk": (1, 1, 0, 1, [], {"answered": 1}), "oai-agents": (1, 1, 0, 0, [], {"answered": 1}),
    "langsmith": (1, 1, 0, 0, [], {"answered": 1}), "otel": (1, 1, 0, 0, [], {"answered": 1}),
}  # fmt: skip
"""Calls, results, errors, answers, verdicts and ends of the samples."""


def read(folder: Path, format_name: str, lines: list[dict[str, Any]]) -> Read:
    """Import lines in the seed's shape, behind a comment."""
    (folder / "seed.jsonl").write_bytes(b"# a comment\n" + b"\n".join(map(orjson.dumps, lines)))
    return read_traces(format_name, folder / "seed.jsonl", options=SEED)


@pytest.mark.parametrize("name", SEED_SHAPES)
def test_every_shape_is_read(tmp_path: Path, name: str) -> None:
    """No call lost, no result invented, no failure of others a fail."""
    found = read(tmp_path, name, LINES[name])
    counts = found.found.plain(0)
    verdicts = [line["status"] for line in found.of("check", "build")]
    assert (
        counts["tool_call"],
        counts["tool_result"],
        counts["errors"],
        counts["final"],
        verdicts,
        counts["ends"],
    ) == COUNTS[name]
    assert (found.found.branches, found.rejected.count) == (1, 0)
    assert all(line["produced_by"] == f"import:{name}" for line in found.of("check", "build"))


@pytest.mark.parametrize("name", SEED_SHAPES)
def test_auto_tells_the_shapes_apart(tmp_path: Path, name: str) -> None:
    """By their members."""
    assert list(read(tmp_path, "auto", LINES[name]).found.formats.values()) == [name]


@pytest.mark.parametrize("name", ["tau-bench", "bfcl", "mcp-atlas", "terminal-bench", "tool-sandbox", "agent-harm"])
def test_an_outcome_that_a_line_leaves_out_is_unknown(tmp_path: Path, name: str) -> None:
    """The seed counts it as a failure."""
    outcomes = ("rule_violations", "task_completed", "pass_rate", "claims_passed", "claims_total", "passed", "success", "refused",
                "harmful_actions_taken")  # fmt: skip
    lines = [{key: value for key, value in line.items() if key not in outcomes} for line in LINES[name]]
    assert read(tmp_path, name, lines).of("check", "build") == []


def test_runs_whose_parents_go_round_are_read(tmp_path: Path) -> None:
    """The seed never ends on them."""
    lines = [
        line | {"parent_run_id": parent}
        for line, parent in zip(LINES["langsmith"], ("tool", "root", "llm"), strict=True)
    ]
    assert read(tmp_path, "langsmith", lines).found.branches == 1


def test_spans_in_any_order_give_the_same_lines(tmp_path: Path) -> None:
    """Their times decide."""
    one, other = (read(tmp_path, "adk", lines) for lines in (LINES["adk"], LINES["adk"][::-1]))
    assert [line["event"]["event"] for line in one.of("event")] == [
        line["event"]["event"] for line in other.of("event")
    ]


def test_a_format_without_such_a_shape_is_refused(tmp_path: Path) -> None:
    """The message names those that have one."""
    with pytest.raises(ImportTracesError, match="no format inspect in the seed's shapes; there are: auto, tau-bench"):
        read(tmp_path, "inspect", [])
