"""Odd requests of agents, answers of upstreams and records of producers are captured and folded, or refused: nothing
else is ever raised."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.capture.call_body import Exchanged, call_body
from agents.capture.capture_fold import CaptureFold, RefusedCaptureError
from agents.capture.protocol import PROTOCOLS, Protocol
from agents.capture.request_delta import TooManyItemsError
from schemas.captures import Capture
from tests.agents.capture.exchanges import Exchange, folded
from tests.model_server import reply, text, thinking, use
from tests.model_server import whole_events as events_of
from tests.model_server import whole_reply as reply_of

WORDS = (
    "choices", "delta", "message", "index", "tool_calls", "function_call", "function", "arguments", "content", "role", "id", "name",
    "type", "text", "thinking", "signature", "partial_json", "input", "output", "item", "response", "usage", "error", "status",
    "finish_reason", "stop_reason", "output_index", "summary", "call_id", "content_block", "reasoning_content", "refusal",
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    ("", "x", "{", '{"a": 1}', "assistant", "tool", "message", "function_call", "tool_use", "reasoning", "thinking", "[DONE]")
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
)
BLOCKS = [thinking("So."), text("Hello"), use("look", 1, at=1), use("look", 2, at=2)]


@st.composite
def spoiled(draw: st.DrawFn, protocol: Protocol) -> tuple[dict[str, Any], bytes, bool]:
    """A request, and a response of which one place is something else."""
    name = {"openai-chat": "chat", "openai-responses": "responses"}.get(protocol, "messages")
    request: dict[str, Any] = {"model": "m", "input": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    streams = draw(st.booleans())
    told: Any = reply(BLOCKS, "tool_use")
    events: list[Any] = events_of(told, name, request, 0) if streams else [reply_of(told, name, request, 0)]  # type: ignore[arg-type]
    events = json.loads(json.dumps(events))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(events))
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        holder[key] = draw(VALUES)
    if not streams:
        return request, json.dumps(events[0]).encode(), False
    return request, b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events), True


def _places(value: Any) -> Any:
    """Every place that a value inside stands at."""
    for key in range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ():
        yield value, key
        yield from _places(value[key])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_an_odd_response_is_captured_and_folded_or_refused(protocol: Protocol, data: st.DataObject) -> None:
    request, response, streams = data.draw(spoiled(protocol))
    fold = CaptureFold("r", 0)
    for number in range(2):  # the second request holds what the first was answered, as an agent would send it
        raw = json.dumps(request).encode()
        body, _ = call_body(Exchanged(protocol, raw, response, 200, streams, None, number, 1, 1), frozenset())
        capture = Capture(
            rollout_id="r", branch_index=0, capture_id=f"c{number}", kind="call", received_ms=1, body=body
        )
        with suppress(RefusedCaptureError):
            fold.take(capture, number)
        answered = json.loads(body).get("response") or {}
        request["messages"] = [*request["messages"], answered, *_said(answered)]
        request["input"] = [answered, *_said(answered)]


def _said(response: Any) -> list[Any]:
    """Values that may be taken for messages in a response."""
    found = [response.get(name) for name in ("choices", "output", "content")] if isinstance(response, dict) else []
    flat = [each for value in found if isinstance(value, list) for each in value]
    return [each.get("message", each) if isinstance(each, dict) else each for each in flat]


ASKED: dict[Protocol, dict[str, Any]] = {
    "openai-chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": "data:a/b;base64,eA=="}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "1"},
        ],
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "temperature": 0.5, "stop": ["x"], "max_tokens": 9,
    },
    "anthropic-messages": {
        "model": "m", "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [thinking("So."), use("look", 1)]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("1")]}, text("Go on")]},
        ],
    },
    "openai-responses": {
        "model": "m", "instructions": "Be brief.", "previous_response_id": None,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So."}]},
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
        ],
    },
    "openai-completions": {"model": "m", "prompt": ["Hi"], "max_tokens": 3},
}  # fmt: skip


def _spoil(data: st.DataObject, value: Any) -> Any:
    """The value with something else in up to three places."""
    held = [json.loads(json.dumps(value))]
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(_places(held))[1:]
        holder, key = places[data.draw(st.integers(0, len(places) - 1))]
        holder[key] = data.draw(VALUES)
    return held[0]


def _answer(protocol: Protocol) -> bytes:
    name: Any = {"openai-chat": "chat", "openai-responses": "responses"}.get(protocol, "messages")
    return json.dumps(reply_of(reply(BLOCKS), name, {}, 0)).encode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_an_odd_request_is_captured_and_folded_or_refused(protocol: Protocol, data: st.DataObject) -> None:
    request = json.dumps(_spoil(data, ASKED[protocol])).encode()
    fold = CaptureFold("r", 0)
    body, digests = call_body(Exchanged(protocol, request, _answer(protocol), 200, False, None, 1, 1, 1), frozenset())
    again, _ = call_body(Exchanged(protocol, request, _answer(protocol), 200, False, None, 2, 1, 1), frozenset(digests))
    for number, each in enumerate((body, again)):
        with suppress(RefusedCaptureError):
            fold.take(_captured(each, number), number)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_an_odd_body_of_a_capture_is_folded_or_refused(protocol: Protocol, data: st.DataObject) -> None:
    """A producer other than the proxy wrote it."""
    fold = CaptureFold("r", 0)
    request = json.dumps(ASKED[protocol]).encode()
    body, digests = call_body(Exchanged(protocol, request, _answer(protocol), 200, False, None, 1, 1, 1), frozenset())
    again, _ = call_body(Exchanged(protocol, request, _answer(protocol), 200, False, None, 2, 1, 1), frozenset(digests))
    for number, each in enumerate((body, again)):
        odd = json.dumps(_spoil(data, json.loads(each))).encode()
        with suppress(RefusedCaptureError):
            fold.take(_captured(odd, number), number)
    fold.take(_captured(b'{"reason": "client"}', 9, "end"), 9)


def _captured(body: bytes, number: int, kind: Any = "call") -> Capture:
    return Capture(rollout_id="r", branch_index=0, capture_id=f"c{number}", kind=kind, received_ms=1, body=body)


@pytest.mark.parametrize("spoil", [b'data: {"choices": [{"index": 0, "delta": {"content": "lo\n\n', b"data: \xff\n\n"])
def test_a_stream_with_an_event_that_cannot_be_read_is_no_turn(spoil: bytes) -> None:
    """Without that event it would be another response."""
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    told = events_of(reply([text("Hello")], "end_turn"), "chat", request, 0)
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in told]
    sent = [b": still here\n\n", b"data:\n\n", *events, b"data: [DONE]\n\n"]

    def captured(stream: list[bytes]) -> dict[str, Any]:
        call = Exchanged(
            "openai-chat", json.dumps(request).encode(), b"".join(stream), 200, is_stream=True, cut=None, started_ms=0,
            first_byte_ms=0, latency_ms=1,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(call_body(call, frozenset()).body)
        return found

    assert "response" in captured(sent)
    spoiled_stream = captured([*sent[:3], spoil, *sent[3:]])
    assert "response" not in spoiled_stream
    assert spoiled_stream["error"]["kind"] == "unreadable"


REPEATED = {
    "messages twice": '{"model":"m","messages":[{"role":"user","content":"a"}],"messages":[{"role":"user","content":"b"}]}',
    "a content twice": '{"model": "m", "messages": [{"role": "user", "content": "a", "content": "b"}]}',
    "written as an escape": '{"model":"m","messages":[{"role":"user","content":"a","\\u0063ontent":"b"}]}',
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_request_that_says_a_thing_twice_is_in_no_row(name: str) -> None:
    response = b'{"id":"c","choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}]}'
    made = folded([Exchange("/v1/chat/completions", REPEATED[name].encode(), 200, "application/json", response)])
    assert (made.rows, made.reasons) == ([], {"not_representable", "other_content"})
    once = b'{"model": "m", "messages": [{"role": "user", "content": "\\u003a \\"content\\": a"}]}'
    assert folded([Exchange("/v1/chat/completions", once, 200, "application/json", response)]).rows


def test_a_request_of_a_million_messages_is_refused_at_once() -> None:
    request = b'{"messages":[' + b"0," * 1_000_000 + b"0]}"
    began = time.process_time()
    with pytest.raises(TooManyItemsError):
        call_body(Exchanged("openai-chat", request, b"{}", 200, False, None, 1, 1, 1), set())
    told = b'{"protocol":"openai-chat","response":{},"request":' + request + b"}"
    with pytest.raises(RefusedCaptureError):
        CaptureFold("r", 0).take(
            Capture(rollout_id="r", branch_index=0, capture_id="c", kind="call", received_ms=1, body=told), 0
        )
    assert time.process_time() - began < 2
