"""Conversation events where they come in: a bad one is refused at its own position, with its field and the way to write it."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.importers.line_error import LineError, TooLargeError
from agents.importers.lines import LineReader
from schemas.conversation import MAX_MESSAGE_BYTES
from tests.processes import run_braid


def line(kind: str, data: dict[str, Any]) -> str:
    return json.dumps({"type": "event", "rollout_id": "r", "branch_index": 0, "event": {"event": kind, "data": data}})


def refused(kind: str, data: dict[str, Any]) -> LineError:
    with pytest.raises(LineError) as caught:
        LineReader().read(line(kind, data))
    return caught.value


CALL: dict[str, Any] = {"call_id": "c", "context": {}}


@pytest.mark.parametrize(
    ("kind", "data", "field", "reason"),
    [
        ("message", {}, "role", "missing; expected one of system, developer, user"),
        ("message", {"role": "robot"}, "role", "expected one of system, developer, user"),
        ("message", {"role": "user", "content": 5}, "content", "expected text, or an array of parts"),
        ("message", {"role": "user", "content": [{"type": "film"}]}, "content.0.type", "expected 'text', 'image'"),
        ("message", {"role": "user", "content": [{"type": "text"}]}, "content.0", "needs its text"),
        ("message", {"role": "user", "content": "", "id": ""}, "id", "at least 1 character"),
        ("message", {"role": "tool", "content": ""}, "", "a tool message needs tool_call_id"),
        ("message", {"role": "user", "reasoning": "hm"}, "", "belong to an assistant message"),
        ("message", {"role": "tool", "toolCallId": "c"}, "toolCallId", "write tool_call_id"),
        ("message", {"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}, "tool_calls.0.name", "without \"function\""),
        ("message", {"role": "assistant", "tool_calls": ["c"]}, "tool_calls.0", "expected an object, found a string"),
        ("model_call", {"context": {}}, "call_id", "missing; give every call an id"),
        ("model_call", {"call_id": "c"}, "context", "missing; say which messages were sent"),
        ("model_call", CALL | {"context": {"keep": -1}}, "context.keep", "expected greater than or equal to 0"),
        ("model_call", CALL | {"context": {"keep": "3"}}, "context.keep", "expected a whole number, found a string"),
        ("model_call", CALL | {"context": {"add": "m1"}}, "context.add", "expected an array, found a string"),
        ("model_call", CALL | {"usage": {"input": 1.5}}, "usage.input", "expected a whole number"),
        ("model_call", CALL | {"error": "boom"}, "error", "expected an object, found a string"),
        ("model_call", CALL | {"finishReason": "stop"}, "finishReason", "write finish_reason"),
    ],
)  # fmt: skip
def test_bad_data_is_refused_with_its_field_and_what_to_write(
    kind: str, data: dict[str, Any], field: str, reason: str
) -> None:
    """The field is named as its sender wrote it, and the reason says the way out."""
    error = refused(kind, data)
    assert error.field == ".".join(filter(None, ("event.data", field)))
    assert reason in error.reason


def test_a_message_may_have_a_mebibyte_and_no_byte_more() -> None:
    """UTF-8 bytes count, not characters."""
    room = MAX_MESSAGE_BYTES - len('{"role":"user","content":""}')
    LineReader().read(line("message", {"role": "user", "content": "x" * room}))
    for content in ("x" * (room + 1), "ü" * (room // 2 + 1)):
        error = refused("message", {"role": "user", "content": content})
        assert isinstance(error, TooLargeError)
        assert (error.field, str(MAX_MESSAGE_BYTES) in error.reason) == ("event.data", True)


def test_fields_that_are_unknown_stay_in_a_conversation_event() -> None:
    """A provider's own fields are kept beside those that are read."""
    data = {"role": "user", "content": "hi", "moodRing": "blue", "extra": {"cacheControl": True}}
    (fact,) = LineReader().read(line("message", data))
    assert json.loads(fact.events[0].data) == data  # type: ignore[union-attr]


def test_a_bad_message_in_a_file_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    """`braid run` reports the line, keeps it aside, and takes the others."""
    good = line("message", {"role": "user", "content": "hi"})
    (tmp_path / "lines.ndjson").write_text("\n".join((good, line("message", {"role": "robot"}), good)) + "\n")
    done = run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out", "--json")
    counts = json.loads(done.stdout)
    assert (done.returncode, counts["bad_lines"], counts["events"]) == (1, 1, 2)
    (kept,) = (tmp_path / "out" / "rejected-input.jsonl").read_text("utf-8").splitlines()
    assert (json.loads(kept)["line"], json.loads(kept)["field"]) == (2, "event.data.role")
