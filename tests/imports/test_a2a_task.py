"""A2A: answers of a real server in both versions, pieces of artifacts, ends by state, calls that failed."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.imports.importing import Read, read_traces

SAMPLES = Path(__file__).parent / "samples" / "a2a-task"


def lines(folder: Path, *values: Any) -> Read:
    """Import these lines."""
    (folder / "tasks.jsonl").write_bytes(b"\n".join(orjson.dumps(value) for value in values))
    return read_traces("a2a-task", folder / "tasks.jsonl")


def task(state: str = "completed", *history: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task."""
    return {"kind": "task", "id": "t1", "status": {"state": state}, "history": history, **more}


def said(role: str, text: str, name: str = "m") -> dict[str, Any]:
    """A message."""
    return {"kind": "message", "role": role, "messageId": name, "parts": [{"kind": "text", "text": text}]}


ASKED = said("user", "Weather?", "u")


@pytest.mark.parametrize("name", ["v1-stream.jsonl", "v03-stream.jsonl"])
def test_a_stream_is_a_task(name: str) -> None:
    """News about the work are status; their calls are calls; the pieces of the artifact are the answer."""
    found = read_traces("auto", SAMPLES / name)
    assert [each["answer"] for each in found.events("final_answer")] == ["Oslo has 4 degrees."]
    assert [each["message"] for each in found.events("status")] == ["Looking..."]
    assert [each["toolName"] for each in found.events("tool_call", "tool_result")] == ["get_weather", "get_weather"]
    assert found.events("assistant_message") == []


def test_updates_of_several_tasks_may_be_mixed(tmp_path: Path) -> None:
    """Each task is told by itself, in the order in which tasks began."""
    begun = [task("submitted", said("user", f"{name}?", f"u{name}")) | {"id": name} for name in "ba"]
    done = [
        {"kind": "artifact-update", "taskId": name, "artifact": {"artifactId": "x", "parts": [{"kind": "text", "text": f"{name}!"}]}}
        for name in "ab"
    ]  # fmt: skip
    ended = [{"kind": "status-update", "taskId": name, "status": {"state": "completed"}} for name in "ab"]
    found = lines(tmp_path, *begun, *done, *ended)
    assert [each["answer"] for each in found.events("final_answer")] == ["b!", "a!"]
    assert [each["position"] for each in found.events("import_source")] == ["line 1", "line 2"]


def test_a_later_answer_about_a_task_replaces_the_earlier() -> None:
    """The second repeats the first."""
    found = read_traces("auto", SAMPLES / "v1-input.jsonl")
    counts = found.found.plain(0)
    assert (counts["branches"], counts["texts"], counts["user"], counts["final"]) == (1, 4, 1, 1)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("completed", ["answered"]), ("failed", ["failed"]), ("rejected", ["failed"]), ("canceled", ["aborted"]),
        ("TASK_STATE_CANCELED", ["aborted"]), ("input-required", []), ("working", []), ("auth-required", []), ("unknown", []),
    ],
)  # fmt: skip
def test_the_end_follows_from_the_state(tmp_path: Path, state: str, status: list[str]) -> None:
    """A task that waits or works has not ended, and what it said last is no answer."""
    found = lines(tmp_path, task(state, ASKED, said("agent", "Four.")))
    assert [line["status"] for line in found.of("end")] == status
    assert len(found.events("final_answer")) == (status == ["answered"])


def test_an_answer_that_a_message_repeats_is_there_once(tmp_path: Path) -> None:
    """Agents may say their artifact as well."""
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": "Four."}]}
    found = lines(tmp_path, task("completed", ASKED, said("agent", "Four."), artifacts=[artifact]))
    assert found.found.plain(0)["texts"] == 1


def test_the_last_message_of_a_status_is_said(tmp_path: Path) -> None:
    """It is no part of the history yet."""
    asks = task("input-required", ASKED) | {"status": {"state": "input-required", "message": said("agent", "Which?")}}
    assert [each["text"] for each in lines(tmp_path, asks).events("assistant_message")] == ["Which?"]


def test_a_snapshot_without_its_history_keeps_what_was_told(tmp_path: Path) -> None:
    """Servers leave the history out when they are asked to."""
    found = lines(
        tmp_path,
        task("working", ASKED, said("agent", "Four.")),
        {"kind": "task", "id": "t1", "status": {"state": "completed"}},
    )
    assert [each["answer"] for each in found.events("final_answer")] == ["Four."]


def test_a_call_that_the_server_refused_is_no_failure_of_the_agent(tmp_path: Path) -> None:
    """With the request the file says what was asked; without it the line is rejected."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": ASKED}}
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error"}}
    found = lines(tmp_path, request, error)
    assert [(line["status"], line["error"]) for line in found.of("end")] == [("infra_error", "Internal error")]
    assert [each["task"] for each in found.events("run_start")] == ["Weather?"]
    assert lines(tmp_path, error).rejected.first == ["tasks.jsonl: line 1: error: a call that failed: Internal error"]


def test_data_and_files_are_kept(tmp_path: Path) -> None:
    """Data as JSON, files as references."""
    parts = [
        {"kind": "data", "data": {"degrees": 4}},
        {"kind": "file", "file": {"bytes": "AAAA", "mimeType": "image/png"}},
    ]
    found = lines(tmp_path, task("completed", ASKED, artifacts=[{"artifactId": "a", "parts": parts}]))
    (answer,) = found.events("final_answer")
    assert answer["answer"] == '{"degrees":4}'
    assert (answer["media"][0]["media_type"], answer["media"][0]["bytes"]) == ("image/png", 3)


def test_lines_that_are_no_tasks_are_rejected(tmp_path: Path) -> None:
    """Their neighbours are read."""
    found = lines(
        tmp_path,
        {"jsonrpc": "2.0", "id": 1, "result": {"ok": True}},
        5,
        task("completed", ASKED, said("agent", "Four.")),
    )
    assert (found.found.branches, found.rejected.count) == (1, 2)
