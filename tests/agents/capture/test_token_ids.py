"""Token ids that are asked for on a caller's behalf: captured as the engine returned them, and gone from the caller's answer."""

import json
from typing import Any

import pytest

from agents.capture.call_body import Exchanged, call_body
from agents.capture.capture_fold import CaptureFold
from agents.capture.event_stream import events_of
from agents.capture.token_request import EventFilter, with_token_ids, without_token_ids
from agents.conversations.tokens import unpack_ids, unpack_logprobs
from agents.models.engine_tokens import tokens_of
from schemas.captures import Capture
from schemas.events import AgentEvent
from tests.token_engine import Engine, Served

REQUEST = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}


def play(_body: dict[str, Any], number: int) -> dict[str, Any]:
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    return {"content": f"hello {number}", "tool_calls": [call]} if number % 2 == 0 else {"content": "done"}


def told(event: AgentEvent, former: list[int]) -> Served:
    """The tokens of a call's event."""
    tokens = event.tokens
    assert tokens is not None
    prompt = former[: tokens.prompt_keep] + unpack_ids(tokens.prompt_ids)
    logprobs = unpack_logprobs(tokens.logprobs or b"", wide=tokens.wide)
    return Served(prompt, unpack_ids(tokens.ids), logprobs, json.loads(event.data)["policy_version"])


@pytest.mark.parametrize("stream", [True, False])
def test_a_captured_call_has_the_tokens_of_its_engine(stream: bool) -> None:
    engine = Engine(play)
    fold = CaptureFold("r", 0)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
    found: list[Served] = []
    former: list[int] = []
    known: set[bytes] = set()
    for number in range(4):
        body = json.dumps({"model": "tiny", "messages": messages, "stream": stream}).encode()
        asked = with_token_ids(body)
        assert asked is not None
        raw, _ = engine.answer(json.loads(asked.body))
        call = Exchanged("openai-chat", body, raw, 200, stream, None, 1, 2, 3)
        made = call_body(call, known)
        known.update(made.digests)
        assert b'"token_ids"' not in made.body
        assert b'"bytes"' not in made.body
        capture = Capture(
            rollout_id="r", branch_index=0, attempt=0, capture_id=f"c{number}", kind="call", source="proxy", received_ms=1, body=made.body,
        )  # fmt: skip
        events = [event for piece in fold.take(capture, number) for event in piece.events if event.tokens is not None]
        found += [told(event, former) for event in events]
        former = found[-1].prompt_ids + found[-1].ids
        reply = play({}, number)
        messages.append({"role": "assistant", **reply})
        if "tool_calls" in reply:
            messages.append({"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "out"})
        else:
            messages.append({"role": "user", "content": "on"})
    assert found == engine.served


def test_a_call_that_the_client_recorded_has_the_tokens_of_its_response() -> None:
    """The client sends a whole request and a whole response, as its SDK has them."""
    engine = Engine(play)
    request = {**REQUEST, "return_token_ids": True, "logprobs": True}
    raw, _ = engine.answer(request)
    body = {"protocol": "openai-chat", "request": request, "response": json.loads(raw), "status": 200, "started_ms": 1}
    capture = Capture(
        rollout_id="r", branch_index=0, attempt=0, capture_id="c", kind="call", source="tracer", received_ms=1,
        body=json.dumps(body).encode(),
    )  # fmt: skip
    slices = CaptureFold("r", 0).take(capture, 0)
    assert [told(event, []) for piece in slices for event in piece.events if event.tokens is not None] == engine.served


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_the_caller_gets_the_answer_that_it_would_have_got(stream: bool, size: int) -> None:
    engine = Engine(play)
    asked = with_token_ids(json.dumps({**REQUEST, "stream": stream}).encode())
    assert asked is not None
    raw, _ = engine.answer(json.loads(asked.body))
    if stream:
        taking = EventFilter(asked.added)
        answer = b"".join([taking.take(raw[at : at + size]) for at in range(0, len(raw), size)]) + taking.end()
        assert events_of(answer) == events_of(engine.answers[0])
    else:
        answer = without_token_ids(raw, asked.added)
    assert answer == engine.answers[0]


def test_a_caller_keeps_the_fields_that_it_asked_for() -> None:
    asked = with_token_ids(json.dumps({**REQUEST, "logprobs": True}).encode())
    assert asked is not None
    assert asked.added == {"return_token_ids"}
    raw, _ = Engine(play).answer(json.loads(asked.body))
    choice = json.loads(without_token_ids(raw, asked.added))["choices"][0]
    assert "token_ids" not in choice
    assert choice["logprobs"]["content"]


def test_the_version_of_the_policy_is_that_of_the_engine_else_the_callers() -> None:
    for answer, version in (({"policy_version": "step-7"}, "step-7"), ({"weight_version": "w3"}, "w3"), ({}, "told")):
        response = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}], **answer}
        call = Exchanged(
            "openai-chat",
            json.dumps(REQUEST).encode(),
            json.dumps(response).encode(),
            200,
            False,
            None,
            1,
            2,
            3,
            policy_version="told",
        )
        capture = Capture(
            rollout_id="r", branch_index=0, attempt=0, capture_id="c", kind="call", source="proxy", received_ms=1,
            body=call_body(call, frozenset()).body,
        )  # fmt: skip
        events = [event for piece in CaptureFold("r", 0).take(capture, 0) for event in piece.events]
        assert [json.loads(event.data)["policy_version"] for event in events if event.event == "model_call"] == [
            version
        ]


REFUSED = {
    "no JSON": b"{", "no object": b"[1]", "several choices": json.dumps({**REQUEST, "n": 2}).encode(),
    "a caller that wants none": json.dumps({**REQUEST, "logprobs": False}).encode(),
    "a caller that asks itself": json.dumps({**REQUEST, "logprobs": True, "return_token_ids": True}).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_requests_go_through_as_they_are(name: str) -> None:
    assert with_token_ids(REFUSED[name]) is None


ODD = [
    b"",
    b"\n\n",
    b"data: {",
    b"data: [DONE]\n\n",
    b': comment\r\ndata: {"token_ids": "x"}',
    b"data: token_ids\n",
    b"\xff\xfe data",
]


@pytest.mark.parametrize("raw", ODD)
def test_a_stream_that_is_none_goes_through_as_it_is(raw: bytes) -> None:
    taking = EventFilter(frozenset({"logprobs"}))
    assert taking.take(raw) + taking.end() == raw


def test_a_line_without_end_goes_through_in_pieces() -> None:
    taking = EventFilter(frozenset({"logprobs"}))
    piece = b"x" * 1_000_000
    sent = b"".join(taking.take(piece) for _ in range(10))
    assert len(sent) >= 5_000_000
    assert sent + taking.take(b"\n") + taking.end() == piece * 10 + b"\n"


def test_sglang_pairs_are_ids_and_log_probabilities() -> None:
    choice = {
        "message": {},
        "meta_info": {"output_token_logprobs": [[-0.5, 7, None], [-0.25, 8, None]], "input_token_ids": [1, 2]},
    }
    assert tokens_of({"choices": [choice]}) == {"prompt_ids": [1, 2], "ids": [7, 8], "logprobs": [-0.5, -0.25]}


HALF: list[dict[str, Any]] = [
    {"choices": [{"token_ids": [1]}]},
    {"prompt_token_ids": [1], "choices": [{"token_ids": [1.5]}]},
    {"prompt_token_ids": [1], "choices": [{"token_ids": [True]}]},
    {"prompt_token_ids": [1], "choices": [{"token_ids": [1]}, {"token_ids": [1]}]},
    {"prompt_token_ids": [1], "choices": "no"},
]


@pytest.mark.parametrize("answer", HALF)
def test_half_of_the_ids_are_none(answer: dict[str, Any]) -> None:
    assert tokens_of(answer) is None
