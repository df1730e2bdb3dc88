"""Microsoft Agent Framework: sessions, responses, approvals, and sessions that say nothing."""

from pathlib import Path
from typing import Any

import orjson

from tests.conformance import conformance
from tests.imports.importing import Read, read_traces

SAMPLE = Path(__file__).parent / "samples" / "ms-agent-framework" / "approval.jsonl"


def session(folder: Path, *messages: dict[str, Any], **changed: Any) -> Read:
    """Import a session of these messages."""
    value = {"type": "session", "session_id": "s1", "state": {"in_memory": {"messages": messages}}} | changed
    (folder / "s.jsonl").write_bytes(orjson.dumps(value))
    return read_traces("auto", folder / "s.jsonl")


def text(role: str, words: str, *more: dict[str, Any]) -> dict[str, Any]:
    """A message."""
    return {"type": "message", "role": role, "contents": [{"type": "text", "text": words}, *more]}


def test_a_response_has_the_turns_of_its_run() -> None:
    """It says its tokens, and not what was asked."""
    found = read_traces("auto", conformance("imports", "ms-agent-framework", "response-0.json"))
    counts = found.found.plain(0)
    assert (counts["tool_call"], counts["tool_result"], counts["errors"], counts["final"]) == (3, 3, 1, 1)
    assert (counts["tokens_in"], counts["tokens_out"]) == (450, 69)
    assert found.events("run_start") == [{}]


def test_a_request_for_approval_repeats_its_call() -> None:
    """The call counts once; the decision is no word of the user."""
    found = read_traces("auto", SAMPLE)
    assert [each["toolName"] for each in found.events("tool_call")] == ["look_up", "look_up", "dangerous"]
    assert [each["decision"] for each in found.events("supervisor_decision")] == ["rejected"]
    assert [each["text"] for each in found.events("user_message")] == ["Do x.", "Bye."]
    assert [line["status"] for line in found.of("end")] == ["answered"]


def test_a_call_that_waits_for_approval_is_there(tmp_path: Path) -> None:
    """Such a session has not ended."""
    call = {"type": "function_call", "call_id": "c", "name": "dangerous", "arguments": {}}
    asks = {"type": "function_approval_request", "id": "a", "function_call": call}
    found = session(tmp_path, text("user", "Do it."), {"role": "assistant", "contents": [asks]})
    assert [each["toolName"] for each in found.events("tool_call")] == ["dangerous"]
    assert found.of("end") == []


def test_a_tool_of_the_service_cuts_its_turn(tmp_path: Path) -> None:
    """Its result stands inside of the message; the words behind it came after."""
    used = {"type": "mcp_server_tool_call", "call_id": "m", "tool_name": "search", "arguments": '{"q": "x"}'}
    gave = {"type": "mcp_server_tool_result", "call_id": "m", "output": "found"}
    found = session(
        tmp_path, text("user", "Search."), text("assistant", "I search.", used, gave, {"type": "text", "text": "Here."})
    )
    assert [(each["toolName"], each["output"]) for each in found.events("tool_result")] == [("search", "found")]
    assert [each["answer"] for each in found.events("final_answer")] == ["Here."]


def test_an_error_of_the_service_ends_the_run(tmp_path: Path) -> None:
    """It is no answer."""
    failed = {"role": "assistant", "contents": [{"type": "error", "message": "overloaded", "error_code": "503"}]}
    found = session(tmp_path, text("user", "Hello"), failed)
    assert [(line["status"], line["error"]) for line in found.of("end")] == [("infra_error", "overloaded")]


def test_messages_that_a_compaction_left_out_are_said(tmp_path: Path) -> None:
    """The model did not see them."""
    out = text("user", "Long ago.") | {"additional_properties": {"_excluded": True}}
    found = session(tmp_path, out, text("user", "Now."), text("assistant", "Yes."))
    assert len(found.events("context_rewritten")) == 1


def test_an_empty_session_is_rejected(tmp_path: Path) -> None:
    """A run that failed leaves none of its messages."""
    found = session(tmp_path, state={"in_memory": {}})
    assert found.rejected.first == [
        "s.jsonl: line 1: state: an empty session: no messages; a run that failed leaves none"
    ]


def test_the_longest_history_of_a_session_is_its_conversation(tmp_path: Path) -> None:
    """Other providers keep theirs in the source."""
    states = {
        "memory": {"messages": [text("user", "a")]},
        "main": {"messages": [text("user", "b"), text("assistant", "c")]},
    }
    found = session(tmp_path, state=states)
    assert [each["task"] for each in found.events("run_start")] == ["b"]
    assert found.events("import_source")[0]["source"]["state"]["memory"]["messages"][0]["contents"][0]["text"] == "a"
