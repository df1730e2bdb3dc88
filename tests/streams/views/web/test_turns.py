"""Transcripts: turns from every form of a branch, and where two branches part."""

import time
from typing import Any

import pytest

from agents.summarize.event_reader import keep_slice
from schemas.events import EventFields
from schemas.jsontext import compact
from streams.views.web.strands import parting
from streams.views.web.turn_writer import transcript_of
from streams.views.web.turns import Transcript


def made(*events: tuple[str, str, dict[str, Any]]) -> Transcript:
    fields = tuple(
        EventFields("", None, channel, kind, compact(data), 1000 + at)
        for at, (channel, kind, data) in enumerate(events)
    )
    return transcript_of([keep_slice(fields, 0, 0, redacting=True)])


def call(name: str, call_id: str, step: int, **arguments: Any) -> tuple[str, str, dict[str, Any]]:
    return "tool", "tool_call", {"toolName": name, "args": arguments, "callId": call_id, "stepIndex": step}


def result(call_id: str, **more: Any) -> tuple[str, str, dict[str, Any]]:
    return "tool", "tool_result", {"callId": call_id, **more}


def test_parallel_calls_share_a_turn_and_results_find_their_calls() -> None:
    told = made(
        ("text", "run_start", {"task": "Mend it"}),
        ("thinking", "thinking_delta", {"delta": "Two ", "step": 0}),
        ("thinking", "thinking_delta", {"delta": "looks.", "step": 0}),
        call("read", "a", 0, path="x.py"),
        call("run", "b", 0, command="make"),
        result("b", error={"code": "E1", "message": "no make"}),
        result("a", output="text of x"),
        call("write_file", "c", 1, path="x.py"),
        ("text", "final_answer", {"answer": "done"}),
    )
    first, second, last = told.turns
    assert told.fidelity == "reconstructed"
    assert (first.given[0].text, first.text, first.tools) == ("Mend it", "Two looks.", "read, run")
    assert [(each.output, each.error, each.code) for each in first.calls] == [
        ("text of x", None, None),
        (None, "no make", "E1"),
    ]
    assert first.failures == 1
    assert second.calls[0].returned is False
    assert last.ending is not None
    assert last.ending.text == "done"
    assert told.files == {"x.py": [1]}
    assert [each.role for each in told.seen(2)] == ["user", "assistant", "tool", "tool", "assistant"]


def test_a_result_without_its_call_is_kept() -> None:
    told = made(result("lost", output="late"), ("text", "error", {"error": "gave up"}))
    assert [(each.paired, each.output) for each in told.turns[0].calls] == [(False, "late")]
    assert told.turns[-1].failures == 1


def test_a_transcript_keeps_user_turns_reasoning_and_a_rewritten_context() -> None:
    told = made(
        ("text", "run_start", {"task": "Hello"}),
        ("thinking", "reasoning", {"text": "be kind"}),
        ("text", "assistant_message", {"text": "Hi"}),
        ("user", "user_message", {"text": "And?"}),
        ("status", "context_rewritten", {}),
        ("text", "assistant_message", {"text": "More"}),
    )
    assert told.fidelity == "transcript"
    assert [(turn.reasoning, turn.text) for turn in told.turns] == [("be kind", "Hi"), ("", "More")]
    assert [words.text for words in told.turns[1].given] == ["And?"]
    assert told.turns[1].is_rewritten


def test_a_secret_that_is_spread_over_pieces_is_removed() -> None:
    key = "sk-ant-api03-" + "aB3dE5fG7h" * 9 + "AA"
    told = made(
        *(("thinking", "thinking_delta", {"delta": part, "step": 0}) for part in (key[:20], key[20:50], key[50:]))
    )
    assert key not in told.turns[0].text
    assert "REDACTED" in told.turns[0].text.upper()


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((call("read", "a", 0, path="x"), result("a", output="same"), call("run", "b", 1)), None),
        (
            (call("read", "a", 0, path="x"), result("a", output="other"), call("run", "b", 1)),
            (0, "the same words and calls, another result"),
        ),
        ((call("read", "a", 0, path="y"), result("a", output="same"), call("run", "b", 1)), (0, "other calls")),
        ((call("read", "a", 0, path="x"), result("a", output="same"), call("edit", "b", 1)), (1, "other calls")),
        ((call("read", "a", 0, path="x"), result("a", output="same")), (1, "one of them goes on")),
    ],
)
def test_branches_part_at_the_first_turn_that_differs(other: tuple[Any, ...], expected: tuple[int, str] | None) -> None:
    one = made(call("read", "a", 0, path="x"), result("a", output="same"), call("run", "b", 1))
    found = parting(one, made(*other))
    assert (None if found is None else tuple(found)) == expected


def test_a_turn_of_ten_thousand_calls_is_read_at_once() -> None:
    """Results in another order, and ids that repeat: each goes to its call, in a time that grows with their number alone."""
    began, many = time.process_time(), 10_000
    calls = [call("run", f"c{number % 5000}", 0, command=str(number)) for number in range(many)]
    results = [result(f"c{number}", output=f"{number} {turn}") for turn in range(2) for number in reversed(range(5000))]
    (turn,) = made(*calls, *results).turns
    assert [each.output for each in turn.calls[:2]] == ["0 0", "1 0"]
    assert [each.output for each in turn.calls[5000:5002]] == ["0 1", "1 1"]
    assert all(each.returned for each in turn.calls)
    assert time.process_time() - began < 5
