"""The adapters against a server that plays both protocols: each failure has its kind, and nothing is made up."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Any

import pytest
from starlette.responses import Response, StreamingResponse

from agents.evidence.canonical import canonical_bytes
from agents.models import http_adapter
from agents.models.anthropic_adapter import AnthropicModel
from agents.models.conversation import Message, Part, ToolCall, ToolDefinition
from agents.models.model import ModelRequest, ModelResponse, ResponseSchema, SamplingParameters, TokenUsage
from agents.models.model_error import ErrorKind, ModelError, ModelSetupError
from agents.models.openai_adapter import OpenAIModel
from agents.models.service import ServiceOptions
from tests.model_server import ModelServer, Play, Protocol, Said, model_server, refusal, reply, text, thinking, use

MODELS: dict[Protocol, Any] = {"messages": AnthropicModel, "chat": OpenAIModel}

TOOL = ToolDefinition("run", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})

REQUEST = ModelRequest(
    "test-model",
    (Message("user", "Do it."),),
    system="Be brief.",
    tools=(TOOL,),
    sampling=SamplingParameters(temperature=0.5, top_p=0.9, top_k=20, max_tokens=64, stop=("END",)),
    timeout_s=5.0,
)

ANSWERED = REQUEST._replace(
    messages=(
        Message("user", "Do it."),
        Message(
            "assistant", "Two.", tool_calls=(ToolCall("c1", "run", '{"command": "a"}'), ToolCall("c2", "run", "{}"))
        ),
        Message("tool", "1", tool_call_id="c1", name="run"),
        Message("tool", "no", tool_call_id="c2", name="run", is_error=True),
        Message("user", "Go on."),
    )
)


def always(make: Callable[[], Said]) -> Play:
    async def play(_body: dict[str, Any], _number: int) -> Said:
        return make()

    return play


async def call(api: ModelServer, protocol: Protocol, request: ModelRequest = REQUEST, **service: Any) -> ModelResponse:
    model = MODELS[protocol]("test-model", ServiceOptions(api.base_url(protocol), **service), api_key="test")
    try:
        response: ModelResponse = await model.call(request)
        return response
    finally:
        await model.close()


both = pytest.mark.parametrize("protocol", MODELS)


@both
@pytest.mark.parametrize("stream", [True, False])
async def test_a_response_is_the_same_over_both_protocols_streamed_or_whole(protocol: Protocol, stream: bool) -> None:
    """Text, reasoning, parallel calls in the model's own text, usage and the end."""
    calls = [use("run", 1, command="ls"), {"type": "tool_use", "id": "toolu_2", "name": "run", "input": {}}]
    told = reply([thinking("Hm, é."), text("Looking."), *calls], "tool_use")
    with model_server(always(lambda: told)) as api:
        found = await call(api, protocol, REQUEST._replace(stream=stream))
    said = found.message
    assert (said.role, said.content, said.reasoning) == ("assistant", "Looking.", "Hm, é.")
    assert [(each.id, each.name, each.parsed()) for each in said.tool_calls] == [
        ("toolu_1", "run", {"command": "ls"}), ("toolu_2", "run", {}),
    ]  # fmt: skip
    served = REQUEST.model if protocol == "messages" else "m"
    assert (found.model, found.finish_reason, found.structured) == (served, "tool_use", None)
    assert found.usage == TokenUsage(100, 20, 5, 0 if protocol == "chat" else None)


@both
@pytest.mark.parametrize("request_", [REQUEST, ANSWERED, REQUEST._replace(stream=False), ANSWERED._replace(cache=True)])
async def test_the_digest_is_of_the_body_that_was_received(protocol: Protocol, request_: ModelRequest) -> None:
    """SHA-256 of its canonical JSON; fields that were asked for beside the protocol are in it."""
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    with model_server(always(lambda: reply([text("x")]))) as api:
        found = await call(api, protocol, request_, extra_body=extra)
    (body,) = api.bodies
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    assert (body["temperature"], body["top_p"], body["top_k"], body["max_tokens"]) == (0.5, 0.9, 20, 64)
    assert body.get("stop_sequences", body.get("stop")) == ["END"]
    assert found.request_digest == sha256(canonical_bytes(body)).hexdigest()


async def test_a_conversation_in_the_form_of_each_protocol() -> None:
    """Answers of one turn are one message of the Messages API, and one each of chat completions."""
    with model_server(always(lambda: reply([text("x")]))) as api:
        for protocol in MODELS:
            await call(api, protocol, ANSWERED)
    messages, chat = (body["messages"] for body in api.bodies)
    assert [each["role"] for each in messages] == ["user", "assistant", "user", "user"]
    assert messages[1]["content"][1] == {"type": "tool_use", "id": "c1", "name": "run", "input": {"command": "a"}}
    assert [(each["tool_use_id"], each["is_error"]) for each in messages[2]["content"]] == [("c1", False), ("c2", True)]
    assert [each["role"] for each in chat] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert chat[2]["tool_calls"][0]["function"] == {"name": "run", "arguments": '{"command": "a"}'}
    assert chat[3] == {"role": "tool", "content": "1", "tool_call_id": "c1"}


async def _long_line() -> AsyncIterator[bytes]:
    yield b"data: "
    for _ in range(100):
        yield b"x" * 65536


def _stream(body: bytes) -> Response:
    return Response(body, media_type="text/event-stream")


FAILURES: dict[str, tuple[Callable[[], Said], ErrorKind, bool]] = {
    "429": (lambda: refusal(429, "rate_limit_error", retry_after="7"), "rate_limited", True),
    "no quota": (lambda: refusal(429, "insufficient_quota", code="insufficient_quota"), "setup", False),
    "500": (lambda: refusal(500, "api_error"), "http_5xx", True),
    "503 in html": (lambda: Response("<html>", 503), "http_5xx", True),
    "529": (lambda: refusal(529, "overloaded_error"), "overloaded", True),
    "400": (lambda: refusal(400, "invalid_request_error"), "bad_request", False),
    "401": (lambda: refusal(401, "authentication_error"), "setup", False),
    "408": (lambda: refusal(408, "timeout"), "timeout", True),
    "cut at once": (lambda: reply([text("Done.")], cut_after=0), "cut_stream", True),
    "cut midway": (lambda: reply([use("run", 1, command="never")], cut_after=3), "cut_stream", True),
    "ended midway": (lambda: reply([use("run", 1, command="never")], silent_after=3), "cut_stream", True),
    "empty": (lambda: _stream(b""), "empty_stream", True),
    "garbage": (lambda: _stream(b"event: x\ndata: {never\n\n"), "unparseable", True),
    "slow first byte": (lambda: reply([text("Done.")], pause_s=20), "timeout", True),
    "a gigantic line": (lambda: StreamingResponse(_long_line(), media_type="text/event-stream"), "too_large", False),
    "an error in the stream": (lambda: reply([text("Done.")], error="api_error"), "http_5xx", True),
}
"""The answer of the service, the kind of the error, and whether another call may help."""


@both
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_is_an_error_with_its_kind(
    monkeypatch: pytest.MonkeyPatch, protocol: Protocol, name: str
) -> None:
    """One request each, never an empty answer; the error knows the request that it belongs to."""
    make, kind, retry = FAILURES[name]
    monkeypatch.setattr(http_adapter, "MAX_ANSWER", 1024 * 1024)
    slow = name == "slow first byte"
    with model_server(always(make)) as api, pytest.raises(ModelError) as failed:
        await call(api, protocol, REQUEST._replace(timeout_s=0.3 if slow else 30.0))
    error = failed.value
    assert (error.kind, error.retry, api.calls) == (kind, retry, 1)
    assert error.request_digest == sha256(canonical_bytes(api.bodies[0])).hexdigest()
    assert error.retry_after_s == (7.0 if name == "429" else None)


ODD = {
    "messages": [
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}},
        {"type": "message_start", "message": 7},
        {"type": "content_block_start", "index": 0, "content_block": None},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}},
    ],
    "chat": [
        {"choices": 7},
        {"choices": [None]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [7]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": 7}}]}}]},
    ],
}
"""Events that are JSON and not the protocol."""


@both
@pytest.mark.parametrize("number", range(4))
async def test_json_of_another_shape_is_an_error(protocol: Protocol, number: int) -> None:
    """A server that speaks something like the protocol ends no branch with a traceback."""
    event = ODD[protocol][number]
    named = f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n"
    with model_server(always(lambda: _stream(named.encode()))) as api, pytest.raises(ModelError) as failed:
        await call(api, protocol)
    assert (failed.value.kind, failed.value.retry) == ("unparseable", True)


WRONG = [[], 7, {"choices": 7}, {"choices": []}, {"choices": [{"message": "x"}]}, {"choices": [{"message": None}]}]


@pytest.mark.parametrize("body", WRONG)
async def test_a_whole_answer_without_a_message_is_an_error(body: Any) -> None:
    """Over chat completions."""
    with model_server(always(lambda: Response(json.dumps(body)))) as api, pytest.raises(ModelError) as failed:
        await call(api, "chat", REQUEST._replace(stream=False))
    assert failed.value.kind == "unparseable"


@both
async def test_a_refused_connection_is_an_error(protocol: Protocol) -> None:
    """Another call may help."""
    with model_server(always(lambda: reply([]))) as api:
        pass
    with pytest.raises(ModelError, match="no connection") as failed:
        await call(api, protocol)
    assert (failed.value.kind, failed.value.retry) == ("connection", True)


@both
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("stop", "finish"), [("refusal", "refusal"), ("max_tokens", "max_tokens"), ("odd", "other")])
async def test_how_a_turn_ended_is_told(protocol: Protocol, stream: bool, stop: str, finish: str) -> None:
    """A refusal and a turn that was cut at its length are responses, and say so."""
    with model_server(always(lambda: reply([text("No.")], stop))) as api:
        found = await call(api, protocol, REQUEST._replace(stream=stream))
    assert found.finish_reason == finish


async def test_a_content_filter_is_told() -> None:
    """Of chat completions."""
    with model_server(always(lambda: reply([], "content_filter"))) as api:
        assert (await call(api, "chat")).finish_reason == "content_filter"


@both
async def test_arguments_stay_the_models_text(protocol: Protocol) -> None:
    """Text that is no JSON object stays, and reading it is an error; it is never an empty object."""
    broken = {"type": "tool_use", "id": "t", "name": "run", "arguments": '{"command": "ec'}
    with model_server(always(lambda: reply([broken], "tool_use"))) as api:
        found = await call(api, protocol)
    assert found.message.tool_calls == (ToolCall("t", "run", '{"command": "ec'),)
    with pytest.raises(ValueError, match="unexpected end"):
        found.message.tool_calls[0].parsed()


async def test_calls_without_ids_are_named_by_their_place() -> None:
    """As some servers of chat completions give them."""
    told = reply([use("run", 1, command="a"), use("run", 2, command="b")], "tool_use", call_ids=False)
    with model_server(always(lambda: told)) as api:
        found = await call(api, "chat", ANSWERED)
    assert [(each.id, each.parsed()["command"]) for each in found.message.tool_calls] == [
        ("call_1_0", "a"), ("call_1_1", "b"),
    ]  # fmt: skip


async def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    """As some servers of chat completions number them."""
    deltas = [
        {"index": 0, "id": name, "function": {"name": "run", "arguments": json.dumps({"command": name})}}
        for name in "ab"
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = b"".join(b"data: " + canonical_bytes(chunk) + b"\n\n" for chunk in chunks)
    with model_server(always(lambda: _stream(body))) as api:
        found = await call(api, "chat")
    assert [each.parsed() for each in found.message.tool_calls] == [{"command": "a"}, {"command": "b"}]
    assert found.usage == TokenUsage(), "the server did not say"


@both
async def test_a_structured_answer_is_json_text(protocol: Protocol) -> None:
    """None where the model gave none."""
    wanted = REQUEST._replace(tools=(), response_schema=ResponseSchema("form", "Fill it in.", {"type": "object"}))
    with model_server(always(lambda: reply([], structured={"a": 1}, tool="form"))) as api:
        assert (await call(api, protocol, wanted)).structured in ('{"a": 1}', '{"a":1}')
    with model_server(always(lambda: reply([]))) as api:
        assert (await call(api, protocol, wanted)).structured is None


@both
async def test_media_cannot_be_sent_yet(protocol: Protocol) -> None:
    """An error before anything is sent, instead of a message without them."""
    shown = Message("user", (Part("text", "See:"), Part("image", digest="0" * 64, media_type="image/png")))
    with model_server(always(lambda: reply([]))) as api, pytest.raises(ModelError, match="media"):
        await call(api, protocol, REQUEST._replace(messages=(shown,)))
    assert api.calls == 0


@both
async def test_a_cancelled_call_is_no_error_of_the_model(protocol: Protocol) -> None:
    """Cancelling goes through."""
    with model_server(always(lambda: reply([], pause_s=20))) as api:
        asked = asyncio.create_task(call(api, protocol))
        while not api.calls:
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


# -- keys and addresses ----------------------------------------------------------------------------------------------------

VARIABLES = {"messages": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), "chat": ("OPENAI_API_KEY", "OPENAI_BASE_URL")}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)


@both
def test_without_a_key_it_says_what_to_set(protocol: Protocol) -> None:
    """The provider's variable, or the one that was configured."""
    with pytest.raises(ModelSetupError, match=VARIABLES[protocol][0]):
        MODELS[protocol]("m", ServiceOptions())
    with pytest.raises(ModelSetupError, match="MY_KEY"):
        MODELS[protocol]("m", ServiceOptions("http://127.0.0.1:1", key_variable="MY_KEY"))


async def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over chat completions; a key from the configured variable is sent."""
    with model_server(always(lambda: reply([text("x")]))) as api:
        monkeypatch.setenv("MY_KEY", "hush")
        for service in (ServiceOptions(api.chat_url), ServiceOptions(api.chat_url, key_variable="MY_KEY")):
            model = OpenAIModel("m", service)
            assert (await model.call(REQUEST)).message.text == "x"
            await model.close()
    assert [each.headers["authorization"] for each in api.received] == ["Bearer none", "Bearer hush"]


@both
@pytest.mark.parametrize(
    "url", ["notaurl", "ftp://here", "http://", "http://here:port", "http://[::1", "//here", "host:80"]
)
def test_an_address_that_is_no_url_is_refused_before_anything_is_asked(
    protocol: Protocol, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the setting that it stands in."""
    with pytest.raises(ModelSetupError, match="BRAID_X"):
        MODELS[protocol]("m", ServiceOptions(url, "BRAID_X"), api_key="test")
    monkeypatch.setenv(VARIABLES[protocol][1], url)
    with pytest.raises(ModelSetupError, match=VARIABLES[protocol][1]):
        MODELS[protocol]("m", ServiceOptions(), api_key="test")


@both
def test_a_password_in_a_bad_address_is_not_shown(protocol: Protocol) -> None:
    """Only what follows it is."""
    with pytest.raises(ModelSetupError) as error:
        MODELS[protocol]("m", ServiceOptions("me:hidden@here"), api_key="test")
    assert "here" in str(error.value)
    assert "hidden" not in str(error.value)
