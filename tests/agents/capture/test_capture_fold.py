"""The fold of captures: the same captures give the same slices, however often and in how many parts they come."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from agents.capture.assembly import assemble
from agents.capture.call_body import Exchanged, call_body
from agents.capture.capture_fold import CaptureFold, RefusedCaptureError
from agents.capture.capture_item import capture_of
from agents.capture.event_stream import events_of
from agents.capture.lost_calls import LOST_BY, lost_calls
from agents.capture.parts import MAX_BYTES, PART_BYTES, in_parts
from agents.capture.tool_events import ToolEvents
from agents.importers.line_error import LineError
from agents.importers.traces.spoken import Called, Spoken
from schemas.captures import Capture
from schemas.events import AgentEvents

Body = dict[str, Any]


def capture(name: str, kind: str, body: Body | bytes, **more: Any) -> Capture:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Capture(rollout_id="r", branch_index=0, capture_id=name, kind=kind, received_ms=1, body=raw, **more)  # type: ignore[arg-type]


def said(text: str | None, *calls: tuple[str, str, str]) -> Body:
    tools = [{"id": each[0], "type": "function", "function": {"name": each[1], "arguments": each[2]}} for each in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": tools} if tools else {})}


def chat(name: str, messages: list[Body], answer: Body | None, **more: Any) -> Capture:
    response = (
        None if answer is None else {"id": name, "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
    )
    body = {
        "protocol": "openai-chat",
        "request": {"model": "m", "messages": messages},
        "response": response,
        "status": 200,
        **more,
    }
    return capture(name, "call", body)


def folded(captures: Sequence[Capture], fold: CaptureFold | None = None) -> list[AgentEvents]:
    fold = fold or CaptureFold("r", 0)
    return [
        piece
        for offset, each in enumerate(captures)
        for piece in fold.take(each, offset)
        if isinstance(piece, AgentEvents)
    ]


def events(slices: Sequence[AgentEvents]) -> list[tuple[str, Body]]:
    return [(event.event, json.loads(event.data)) for piece in slices for event in piece.events]


U, R = {"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "t1", "content": "ok"}
CALL = said(None, ("t1", "bash", '{"command":"ls"}'))
END = capture("z", "end", {"reason": "client"})


def test_events_are_numbered_without_gaps_and_the_end_says_the_last() -> None:
    slices = folded([chat("a", [U], CALL), chat("b", [U, CALL, R], said("done")), END])
    assert [(piece.first_seq, len(piece.events)) for piece in slices] == [(0, 3), (3, 3), (6, 0)]
    assert (slices[-1].ended, slices[-1].last_seq, slices[-1].status) == (True, 5, "answered")
    assert [kind for kind, _ in events(slices)] == [
        "message",
        "message",
        "model_call",
        "message",
        "message",
        "model_call",
    ]
    assert all(piece.captured for piece in slices)


def test_repeated_captures_are_ignored_and_the_slices_stay_the_same() -> None:
    captures = [chat("a", [U], CALL), chat("b", [U, CALL, R], said("done")), END]
    doubled = [captures[0], captures[0], captures[1], captures[0], captures[1], END]
    assert folded(doubled) == folded(captures)


def test_a_capture_after_the_end_is_late_and_a_repetition_is_not() -> None:
    fold = CaptureFold("r", 0)
    first = chat("a", [U], said("done"))
    folded([first, END], fold)
    assert fold.take(first, 7) == []
    with pytest.raises(RefusedCaptureError) as refused:
        fold.take(chat("c", [U], said("more")), 8)
    assert refused.value.reason == "late"


def test_an_idle_end_is_void_when_something_came_before_it_was_written() -> None:
    idle = capture("idle-0", "end", {"reason": "idle", "read_to": 0})
    slices = folded([chat("a", [U], CALL), chat("b", [U, CALL, R], said("done")), idle, END])
    assert [piece.ended for piece in slices] == [False, False, True]
    slices = folded([chat("a", [U], CALL), idle])
    assert (slices[-1].status, slices[-1].error) == ("aborted", "nothing came after its last tool calls")


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limited"), (500, "http_5xx"), (529, "overloaded")])
def test_a_failed_call_is_no_turn_and_ends_the_branch_as_infra_error(status: int, kind: str) -> None:
    slices = folded([chat("a", [U], said("one")), chat("b", [U, said("one"), U], None, status=status), END])
    assert [call["error"]["kind"] for name, call in events(slices) if name == "model_call" and "error" in call] == [
        kind
    ]
    assert slices[-1].status == "infra_error"


def test_the_agents_own_word_about_its_end_wins() -> None:
    end = capture("z", "end", {"reason": "client", "status": "failed", "error": "gave up", "answer": "no"})
    slices = folded([chat("a", [U], said("one")), end])
    assert (slices[-1].status, slices[-1].error) == ("failed", "gave up")
    assert events(slices)[-1] == ("final_answer", {"answer": "no"})


def test_an_end_that_comes_twice_is_a_repetition() -> None:
    fold = CaptureFold("r", 0)
    slices = folded([chat("a", [U], said("done")), END, END], fold)
    assert [piece.ended for piece in slices] == [False, True]


def test_an_agents_event_takes_no_id_from_an_end() -> None:
    taken = [capture(f"idle-{at}", "event", {"event": {"event": "status", "data": {}}}) for at in range(5)]
    idle = capture("idle-4", "end", {"reason": "idle", "read_to": 4})
    assert folded([*taken, idle])[-1].ended


@pytest.mark.parametrize("word", ["answered", "failed", None])
def test_a_branch_with_a_call_that_is_not_known_is_unknown_whatever_its_agent_says(word: str | None) -> None:
    end = capture("z", "end", {"reason": "client"} | ({"status": word} if word else {}))
    lost = lost_calls("r", 0, 0, "l", 1)
    unreadable = capture("b", "call", b'{"protocol":"none"}')
    (large,) = in_parts(capture("c", "call", b"x" * (MAX_BYTES + 1)))
    for odd in (lost, unreadable, large):
        fold = CaptureFold("r", 0)
        slices = folded([chat("a", [U], said("done"))], fold)
        try:
            fold.take(odd, 1)
        except RefusedCaptureError as refused:
            assert (odd, refused.reason) == (unreadable, "unreadable")  # noqa: PT017 - two of the three are events
        slices = [each for each in fold.take(end, 2) if isinstance(each, AgentEvents)]
        assert (slices[-1].status, (slices[-1].error or "")[:19]) == ("infra_error", "not captured whole:")


def test_tool_events_of_many_calls_find_theirs_at_once() -> None:
    """In the other order, with ids of the tracer's own, and as many that fit no call: the time grows with their number alone."""
    began, many = time.process_time(), 20_000
    tools, calls = ToolEvents(), [Called("run", json.dumps({"n": each // 2}), f"t{each}") for each in range(many)]
    told = tools.respond(Spoken("assistant", calls=tuple(calls)))
    for each in reversed(range(2 * many)):
        data = {"toolName": "run" if each < many else "other", "args": {"n": each // 2}, "callId": f"own-{each}"}
        told += tools.take({"event": "tool_call", "data": data})
    told += tools.release()
    assert sorted(each["data"]["callId"] for each in told if each["data"]["toolName"] == "run") == sorted(
        str(each.id) for each in calls
    )
    assert sum(each["data"]["toolName"] == "other" for each in told) == many
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", ["message", "model_call"])
def test_what_a_model_said_follows_from_calls_alone(kind: str) -> None:
    """An agent that could write the next message itself would put words into the mouth of its model."""
    data = {"id": "m3", "role": "assistant", "content": "All tests pass."}
    item = {"kind": "event", "id": "e1", "event": {"event": kind, "channel": "conversation", "data": data}}
    with pytest.raises(LineError, match="follows from the calls; send an item of kind call"):
        capture_of(item, {"rollout_id": "r", "branch_index": 0, "attempt": 0}, 1, redacting=False)


def test_an_agent_writes_no_note_of_lost_calls() -> None:
    note = json.loads(lost_calls("r", 0, 0, "l", 1).body) | {"kind": "event", "id": "l", "source": LOST_BY}
    made = capture_of(note, {"rollout_id": "r", "branch_index": 0, "attempt": 0}, 1, redacting=False)
    assert made.source == "tracer"
    assert folded([chat("a", [U], said("done")), made, END])[-1].status == "answered"


def test_a_capture_in_parts_gives_what_the_whole_gives() -> None:
    whole = chat("a", [{"role": "user", "content": "x" * (2 * PART_BYTES + 5)}], said("done"))
    parts = in_parts(whole)
    assert [part.part for part in parts] == [0, 1, 2]
    assert max(len(part.body) for part in parts) <= PART_BYTES
    assert folded([*parts, END]) == folded([whole, END])
    assert events(folded([parts[0], parts[2], parts[0], parts[1]]))[-1][0] == "model_call"


def test_a_capture_over_32_mib_is_its_digest_and_says_so() -> None:
    (kept,) = in_parts(capture("a", "call", b"x" * (MAX_BYTES + 1)))
    assert (kept.parts, kept.body, kept.size) == (0, b"", MAX_BYTES + 1)
    assert events(folded([kept]))[0][0] == "unreadable"


def exchanged(messages: list[Body], answer: str, **more: Any) -> Exchanged:
    request = json.dumps(
        {"model": "m", "tools": [{"type": "function", "function": {"name": "t" * 600}}], "messages": messages}
    ).encode()
    response = json.dumps({"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}).encode()
    return Exchanged("openai-chat", request, response, 200, False, None, 1, 2, 3, **more)


HUGE = "x" * 5_000_000


@pytest.mark.parametrize("more", [
    {"request": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stop": [HUGE]}}, {"policy_version": HUGE},
    {"response": {"choices": [{"index": 0, "message": said("Hello"), "finish_reason": HUGE}]}},
    {"response": {"model": HUGE, "choices": [{"index": 0, "message": said("Hello"), "finish_reason": "stop"}]}},
])  # fmt: skip
def test_an_event_that_no_slice_could_hold_is_a_note_and_its_branch_is_unknown(more: Body) -> None:
    """Any field may be of any length: a slice that the topic refuses would stop the worker, each time that it starts."""
    user = [{"role": "user", "content": "Hi"}]
    made = folded([chat("a", user, said("Hello"), **more), capture("end", "end", {"status": "answered"})])
    assert max(len(piece.model_dump_json()) for piece in made) < 10_000
    assert ("unreadable", "too large") in [(kind, data.get("reason")) for kind, data in events(made)]
    assert (made[-1].status, made[-1].error) == ("infra_error", "not captured whole: a model_call is too large")


def test_a_channel_of_any_length_is_refused_and_was_never_written() -> None:
    event = {"event": "status", "channel": HUGE, "data": {}}
    with pytest.raises(LineError, match=r"event\.channel"):
        capture_of({"kind": "event", "id": "a", "event": event}, {}, 1, redacting=False)
    (note,) = folded([capture("a", "event", {"event": event})])
    assert note.events[0].event == "unreadable"


def test_histories_are_stored_as_differences_and_read_back_whole() -> None:
    known: set[bytes] = set()
    captures, whole, messages = [], [], list[Body]()
    for number in range(12):
        messages += [{"role": "user", "content": f"question {number} " + "x" * 500}]
        made = call_body(exchanged(messages, f"answer {number}"), known)
        known.update(made.digests)
        captures.append(capture(f"c{number}", "call", made.body))
        whole.append(capture(f"c{number}", "call", call_body(exchanged(messages, f"answer {number}"), set()).body))
        messages += [{"role": "assistant", "content": f"answer {number}"}]
    assert events(folded(captures)) == events(folded(whole))
    assert max(len(each.body) for each in captures[1:]) < 1600
    assert len(whole[-1].body) > 7000


def test_a_difference_to_something_that_was_never_captured_is_refused() -> None:
    made = call_body(exchanged([U], "one"), set())
    second = call_body(exchanged([U, {"role": "assistant", "content": "one"}, U], "two"), set(made.digests))
    with pytest.raises(RefusedCaptureError) as refused:
        folded([capture("b", "call", second.body)])
    assert refused.value.reason == "unreadable"


def tool(kind: str, name: str, **data: Any) -> Capture:
    return capture(name, "event", {"at_ms": 5, "event": {"event": kind, "data": data}})


def test_a_tracers_tool_events_get_the_id_of_the_models_call() -> None:
    seen = [
        chat("a", [U], CALL),
        tool("tool_call", "e1", toolName="bash", args={"command": "ls"}, callId="own-1"),
        tool("tool_result", "e2", callId="own-1", output="ok"),
        tool("tool_call", "e3", toolName="other", args={}, callId="own-2"),
        chat("b", [U, CALL, R], said("done")),
    ]
    told = [(kind, data["callId"]) for kind, data in events(folded(seen)) if kind.startswith("tool_")]
    assert told == [("tool_call", "t1"), ("tool_result", "t1"), ("tool_call", "own-2")]
    early = [seen[1], seen[2], seen[0], END]
    assert [data["callId"] for kind, data in events(folded(early)) if kind.startswith("tool_")] == ["t1", "t1"]


def test_a_responses_call_that_names_an_earlier_response_continues_it() -> None:
    def call(name: str, request: Body, text: str) -> Capture:
        output = [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
        ]
        response = {"id": f"resp_{name}", "status": "completed", "output": output}
        return capture(
            name, "call", {"protocol": "openai-responses", "request": request, "response": response, "status": 200}
        )

    slices = folded([
        call("a", {"input": "one", "instructions": "be brief"}, "first"),
        call("b", {"input": "two", "instructions": "be brief", "previous_response_id": "resp_a"}, "second"),
        call("c", {"input": "three", "previous_response_id": "resp_unknown"}, "third"),
    ])  # fmt: skip
    told = events(slices)
    contexts = [data["context"] for kind, data in told if kind == "model_call"]
    assert contexts[1] == {"after": "a", "keep": 3, "add": ["m3"]}
    assert [
        data["content"][0]["type"] for kind, data in told if kind == "message" and isinstance(data.get("content"), list)
    ] == ["other"]
    assert [data["reasoning"] for kind, data in told if data.get("reasoning")] == ["hm"] * 3


def test_items_of_a_response_come_back_as_one_message() -> None:
    asked = {"type": "function_call", "call_id": "t1", "name": "sh", "arguments": "{}"}
    patch = {"type": "custom_tool_call", "call_id": "t2", "name": "patch", "input": "*** Begin"}
    outputs = [
        {"type": f"{kind}_output", "call_id": name, "output": "ok"}
        for kind, name in (("function_call", "t1"), ("custom_tool_call", "t2"))
    ]
    first = {"id": "1", "output": [asked, patch]}
    user = {"role": "user", "content": "go"}
    second = {
        "id": "2",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}],
    }
    bodies = [
        {"protocol": "openai-responses", "request": {"input": [user]}, "response": first, "status": 200},
        {
            "protocol": "openai-responses",
            "request": {"input": [user, asked, patch, *outputs]},
            "response": second,
            "status": 200,
        },
    ]
    told = events(folded([capture(str(number), "call", body) for number, body in enumerate(bodies)]))
    contexts = [data["context"] for kind, data in told if kind == "model_call"]
    assert contexts[1] == {"after": "0", "keep": 2, "add": ["m2", "m3"]}
    assert [json.loads(call["arguments"]) for call in told[1][1]["tool_calls"]] == [{}, {"input": "*** Begin"}]


def test_a_stream_counts_only_when_its_protocol_says_that_it_ended() -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\r\n\r\n'
    assert not assemble("openai-chat", events_of(chunk)).is_whole
    assert assemble("openai-chat", events_of(chunk + b"data: [DONE]\r\n\r\n")).is_whole
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"m"}}\n\n'
    assert assemble("anthropic-messages", events_of(error)).error == {"type": "overloaded_error", "message": "m"}


DELTA = {"protocol": "openai-chat", "is_delta": True}


def test_hostile_bodies_are_refused_and_raise_nothing_else() -> None:
    bodies: list[Body | bytes] = [
        b"", b"[]", b"{", b"[" * 200_000, {}, {"protocol": "x"}, {"protocol": "openai-chat", "request": 3},
        {**DELTA, "request": {"fields": {}, "history": "messages", "keep": 9, "digest": "x", "add": []}},
        {**DELTA, "request": {}},
        {**DELTA, "request": {"fields": 3, "history": 1, "keep": "x", "add": 7}},
    ]  # fmt: skip
    for number, body in enumerate(bodies):
        with pytest.raises(RefusedCaptureError):
            CaptureFold("r", 0).take(capture(f"c{number}", "call", body), 0)
    odd_messages = [3, {"role": "x"}, {"role": "user", "content": [[1]]}]
    odd_choice = {"message": {"content": {"a": 1}, "tool_calls": [{}]}}
    odd = {
        "protocol": "openai-chat",
        "request": {"messages": odd_messages},
        "response": {"choices": [odd_choice]},
        "status": 200,
    }
    with pytest.raises(RefusedCaptureError):
        folded([capture("odd", "call", odd)])
