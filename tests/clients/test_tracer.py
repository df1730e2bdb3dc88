"""The tracer of the client, against a real HTTP server: the records that it sends, and how a branch ends."""

import asyncio
import hashlib
import json
import logging
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from anthropic.types import Message
from braidstream import Braid, Run, current_run, tracer
from openai.types.chat import ChatCompletion

from tests.clients.gateway_server import Server, serving

TOKEN = "tok-0123456789abcdef"
REQUEST = httpx.Request("POST", "http://127.0.0.1/v1/messages")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def run(server: Server) -> Run:
    return Braid(server.url, token=TOKEN).rollout("r").branch(0)


def response(status: int) -> httpx.Response:
    return httpx.Response(status, request=REQUEST)


def test_a_rollout_arrives_from_its_opening_to_its_verdict(server: Server) -> None:
    """The example of the documentation: the opening first, then the branch in its order, then the check."""

    def bash(command: str) -> str:
        return f"ran {command}"

    with Braid(server.url).rollout("fix-42", task="Make the tests pass", branches=1, required=["tests"]) as r:
        with r.branch(0) as run:
            assert run.tool(bash)(command="make test") == "ran make test"
            run.answer("done")
        r.check(0, "tests", passed=True)
    first, *_, last = server.requests
    assert first.path == "/v1/rollouts"
    assert first.body == {
        "rollout_id": "fix-42", "task": "Make the tests pass", "branches": 1, "required": ["tests"],
    }  # fmt: skip
    (called, call), (ended, result) = server.events()
    assert (called, call["toolName"], call["args"]) == ("tool_call", "bash", {"command": "make test"})
    assert (ended, result["callId"], result["output"]) == ("tool_result", call["callId"], "ran make test")
    assert (server.end()["status"], server.end()["answer"]) == ("answered", "done")
    assert last.path == "/v1/rollouts/fix-42/branches/0/verdicts/check"
    assert (last.body["name"], last.body["status"]) == ("tests", "pass")
    assert (run.lost, r.lost) == (0, 0)


def test_a_rollout_without_a_task_is_not_opened_again(server: Server) -> None:
    """Processes that run one branch each name the rollout; one of them opened it."""
    with Braid(server.url).rollout("r") as r, r.branch(3, attempt=2):
        pass
    (request,) = server.requests
    assert (request.path, request.query) == ("/v1/rollouts/r/branches/3/captures", "attempt=2")


@pytest.mark.parametrize(
    ("provider", "attempt", "path"),
    [
        ("openai", 0, "/r/a%2Fb%20%C3%A9%3F/b/3/openai/v1"),
        ("openai", 2, "/r/a%2Fb%20%C3%A9%3F/b/3/a/2/openai/v1"),
        ("anthropic", 0, "/r/a%2Fb%20%C3%A9%3F/b/3/anthropic"),
    ],
)
def test_base_urls_name_the_branch(provider: str, attempt: int, path: str) -> None:
    """Ids are percent-encoded; the SDK of Anthropic adds its version itself."""
    run = Braid("http://127.0.0.1:1", proxy_url="http://127.0.0.1:2/").rollout("a/b é?").branch(3, attempt)
    assert run.base_url(provider) == f"http://127.0.0.1:2{path}"


def test_variables_configure_the_client(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """BRAID_URL, BRAID_TOKEN and BRAID_PROXY_URL; a program that is a branch inherits its place."""
    monkeypatch.setenv("BRAID_URL", server.url)
    monkeypatch.setenv("BRAID_TOKEN", TOKEN)
    monkeypatch.setenv("BRAID_PROXY_URL", f"{server.url}/below")
    run = Braid().rollout("r").branch(1)
    run.end()
    run.rollout.braid.flush()
    ((path, _, token, _),) = server.requests
    assert (path, token) == ("/below/v1/rollouts/r/branches/1/captures", f"Bearer {TOKEN}")
    told = run.environment()
    assert told["ANTHROPIC_BASE_URL"] == f"{server.url}/below/r/r/b/1/anthropic"
    assert (told["BRAID_ROLLOUT"], told["BRAID_BRANCH"]) == ("r", "1")


def test_a_program_that_is_a_branch_gets_a_token_of_its_own_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent code is hostile: the token of the harness may write verdicts."""
    monkeypatch.setenv("BRAID_TOKEN", TOKEN)
    run = Braid("http://127.0.0.1:9").rollout("r").branch(0)
    assert TOKEN not in json.dumps([run.environment(), run.headers()])
    given = run.environment("agent-token")
    assert (given["BRAID_TOKEN"], given["ANTHROPIC_CUSTOM_HEADERS"]) == ("agent-token", "X-Braid-Token: agent-token")
    assert run.headers("agent-token") == {"X-Braid-Token": "agent-token"}


def test_arguments_are_recorded_by_name(run: Run, server: Server) -> None:
    """Positional arguments, variable ones, and those of a method."""

    class Shell:
        def bash(self, command: str, *more: str, cwd: str = ".", **options: int) -> None: ...

    run.tool(Shell().bash)("ls", "-l", cwd="/", timeout=3)
    run.rollout.braid.flush()
    assert server.events()[0][1]["args"] == {"command": "ls", "more": ["-l"], "cwd": "/", "timeout": 3}


def test_an_exception_of_a_tool_is_its_error_and_goes_on(run: Run, server: Server) -> None:
    """The agent sees the exception as without the tracer."""

    @run.tool
    def broken() -> None:
        raise KeyError("no such file")

    with pytest.raises(KeyError):
        broken()
    run.rollout.braid.flush()
    _, (kind, result) = server.events()
    assert (kind, result["error"]) == ("tool_result", {"code": "KeyError", "message": "'no such file'"})
    assert "output" not in result


async def test_coroutines_are_tools_and_branches_are_asynchronous(server: Server) -> None:
    """Parallel calls keep their own results."""

    async def look(number: int) -> int:
        await asyncio.sleep(0.01 * (3 - number))
        return number * 10

    async with Braid(server.url).rollout("r") as r, r.branch(0) as run:
        assert await asyncio.gather(*(run.tool(look)(number) for number in range(3))) == [0, 10, 20]
    calls = {data["callId"]: data["args"]["number"] for kind, data in server.events() if kind == "tool_call"}
    results = {calls[data["callId"]]: data["output"] for kind, data in server.events() if kind == "tool_result"}
    assert results == {0: 0, 1: 10, 2: 20}


CHAT = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "reasoning_content": "think",
      "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}  # fmt: skip
MESSAGE = {
    "id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use", "stop_sequence": None,
    "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}  # fmt: skip


@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic-messages"])
def test_objects_of_sdks_are_recorded_as_the_server_sent_them(run: Run, server: Server, protocol: str) -> None:
    """Also where they stand inside of the next request."""
    answer: Any
    if protocol == "openai-chat":
        raw, answer = CHAT, ChatCompletion.model_validate(CHAT)
        said, plain = answer.choices[0].message, CHAT["choices"][0]["message"]  # type: ignore[index]
    else:
        raw, answer = MESSAGE, Message.model_validate(MESSAGE)
        said, plain = ({"role": "assistant", "content": each} for each in (answer.content, MESSAGE["content"]))
    run.model_call({"model": "m", "messages": [{"role": "user", "content": "go"}, said], "n": openai.NOT_GIVEN}, answer)
    run.rollout.braid.flush()
    (call,) = server.captures()
    assert (call["kind"], call["protocol"], call["status"]) == ("call", protocol, 200)
    assert call["response"] == raw
    assert call["request"] == {"model": "m", "messages": [{"role": "user", "content": "go"}, plain]}


def test_a_failed_model_call_has_its_status_and_no_response(run: Run, server: Server) -> None:
    """It becomes no turn."""
    error = openai.RateLimitError("slow down", response=response(429), body=None)
    run.model_call({"model": "m", "messages": []}, error=error, started_ms=1000, latency_ms=20)
    run.rollout.braid.flush()
    (call,) = server.captures()
    assert (call["status"], call["response"]) == (429, None)
    assert call["error"] == {"kind": "RateLimitError", "message": "slow down"}
    assert (call["started_ms"], call["latency_ms"]) == (1000, 20)


def test_a_model_call_that_cannot_be_read_is_counted(run: Run, server: Server) -> None:
    """A stream is no response; the branch is then unknown, not half told."""
    run.model_call({"model": "m", "messages": []}, iter("stream"))
    run.end()
    run.rollout.braid.flush()
    assert run.lost == 1
    assert server.events() == [("content_left_out", {"reason": "not_recorded", "count": 1})]
    assert server.end()["status"] == "infra_error"


def test_values_without_a_json_form_are_spelled_out(run: Run, server: Server) -> None:
    """NaN, broken text, odd keys, bytes, sets and objects: none of them stops an event."""
    deep: list[Any] = []
    deep.append(deep)
    given = {"nan": float("nan"), "text": "a\udc80", 3: {1, 2}, "raw": b"\xff", "path": Path("/tmp"), "none": None}
    run.event("status", value=given)
    run.event("status", value=deep)
    run.rollout.braid.flush()
    ((_, data),) = server.events()
    digest = f"sha256:{hashlib.sha256(bytes([255])).hexdigest()}"
    assert data["value"] == {
        "nan": "nan", "text": "a\\udc80", "3": [1, 2], "raw": {"type": "bytes", "bytes": 1, "digest": digest}, "path": "/tmp", "none": None,
    }  # fmt: skip
    assert run.lost == 1, "a circle has no JSON form, and is counted"


def test_a_field_that_is_too_large_is_told_by_its_digest(run: Run, server: Server) -> None:
    """Nothing is cut: the event says length and digest, and another one says that content was left out."""
    output = "x" * (tracer.MAX_EVENT + 1)
    run.tool_call("bash", {"command": "yes"})(output)
    run.rollout.braid.flush()
    reference = {
        "type": "text",
        "bytes": len(output),
        "digest": f"sha256:{hashlib.sha256(output.encode()).hexdigest()}",
    }
    _, (left_out, media), (kind, data) = server.events()
    assert (kind, data["output"]) == ("tool_result", reference)
    assert (left_out, media["reason"], media["media"]) == (
        "content_left_out", "too_large", [reference | {"field": "output"}],
    )  # fmt: skip
    assert run.lost == 0


def test_an_answer_that_is_too_long_is_told_by_its_digest(run: Run, server: Server) -> None:
    """The branch ends as it did; only the text is left out."""
    answer = "y" * (tracer.MAX_ANSWER + 1)
    run.answer(answer)
    run.end()
    run.rollout.braid.flush()
    ((kind, data),) = server.events()
    assert (kind, data["media"][0]["digest"]) == (
        "content_left_out", f"sha256:{hashlib.sha256(answer.encode()).hexdigest()}",
    )  # fmt: skip
    assert (server.end()["status"], "answer" in server.end()) == ("answered", False)


async def test_code_knows_the_branch_in_whose_block_it_runs(server: Server) -> None:
    """Tasks of several branches side by side each find their own; outside there is none."""
    rollout = Braid(server.url).rollout("r")

    async def work(branch: int) -> Run | None:
        async with rollout.branch(branch):
            await asyncio.sleep(0.01)
            return current_run()

    found = await asyncio.gather(*(work(branch) for branch in range(3)))
    assert [run.index for run in found if run is not None] == [0, 1, 2]
    assert current_run() is None
    with rollout.branch(3) as outer:
        with rollout.branch(4) as inner:
            assert current_run() is inner
        assert current_run() is outer


class UnprintableError(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_nothing_that_an_agent_gives_makes_the_tracer_raise(run: Run, server: Server) -> None:
    """Objects that break when they are looked at; the branch then ends as unknown."""

    class Hostile:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

        def __repr__(self) -> str:
            raise RuntimeError("repr")

        __str__ = __repr__

    run.event("status", value=Hostile())
    run.model_call(Hostile(), Hostile())
    run.model_call({"model": "m"}, error=Hostile(), latency_ms="soon")  # type: ignore[arg-type]
    run.tool(lambda value: value, name="same")(Hostile())
    run.answer(Hostile())
    with pytest.raises(UnprintableError), run:
        raise UnprintableError
    assert run.lost >= 3
    assert server.end()["status"] == "infra_error"


def caused(by: BaseException) -> RuntimeError:
    error = RuntimeError("the agent gave up")
    error.__cause__ = by
    return error


Overloaded = type("ModelOverloadedError", (Exception,), {})
"""An exception of a library that is not installed here."""


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (None, "answered"),
        (SystemExit(0), "answered"),
        (SystemExit(500), "failed"),
        (ValueError("mine"), "failed"),
        (TimeoutError("out of time by itself"), "failed"),
        (subprocess.TimeoutExpired("make", 1), "failed"),
        (openai.BadRequestError("context too long", response=response(400), body=None), "failed"),
        (httpx.HTTPStatusError("404", request=REQUEST, response=response(404)), "failed"),
        (openai.RateLimitError("429", response=response(429), body=None), "infra_error"),
        (openai.APIStatusError("502", response=response(502), body=None), "infra_error"),
        (openai.AuthenticationError("401", response=response(401), body=None), "infra_error"),
        (anthropic.APIConnectionError(request=REQUEST), "infra_error"),
        (anthropic.APIStatusError("529", response=response(529), body=None), "infra_error"),
        (httpx.ReadTimeout("slow"), "infra_error"),
        (httpx.RemoteProtocolError("cut"), "infra_error"),
        (ConnectionResetError(), "infra_error"),
        (Overloaded(), "infra_error"),
        (caused(httpx.ConnectError("no")), "infra_error"),
        (ExceptionGroup("tasks", [openai.APITimeoutError(REQUEST)]), "infra_error"),
        (KeyboardInterrupt(), "aborted"),
        (asyncio.CancelledError(), "aborted"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_exception_ends_the_branch(server: Server, raised: BaseException | None, status: str) -> None:
    """The agent's own failure is failed, the provider's unknown, and a stop is a stop; the exception goes on."""
    run = Braid(server.url).rollout("r").branch(0)
    with nullcontext() if raised is None else pytest.raises(type(raised)), run:
        if raised is not None:
            raise raised
    assert server.end()["status"] == status
    assert ("error" in server.end()) is (status != "answered")


def test_the_first_end_counts(run: Run, server: Server) -> None:
    """An agent that says how it ended is believed over the end of its block."""
    with run:
        run.end("aborted")
    assert server.end()["status"] == "aborted"


def test_the_token_is_in_the_header_and_nowhere_else(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a body, although a tool printed the environment; not in a repr, nor in the log."""
    caplog.set_level(logging.DEBUG)
    braid = Braid(server.url, token=TOKEN)
    with braid.rollout("r", task="t") as r, r.branch(0) as run:
        run.tool(lambda: f"BRAID_TOKEN={TOKEN}", name="env")()
        assert TOKEN not in f"{braid!r}{r!r}{run!r}{run.base_url('openai')}"
    assert {request.token for request in server.requests} == {f"Bearer {TOKEN}"}
    assert TOKEN not in json.dumps([request.body for request in server.requests])
    assert server.events()[1][1]["output"] == "BRAID_TOKEN=[BRAID_TOKEN]"
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("token", ["secret\n", "secret\r\nX: y", "gehéim", " secret"])
def test_a_token_that_no_header_carries_is_refused_without_naming_it(token: str) -> None:
    """Python's own message would repeat it."""
    with pytest.raises(ValueError, match="characters that a header cannot carry") as caught:
        Braid("http://127.0.0.1:1", token=token)
    assert token.strip() not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://", "127.0.0.1:8790", "ftp://host", "http://user:pass@host", "http://host?key=1"]
)
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    """A mistake of configuration is told where it is made, without the password that it may hold."""
    with pytest.raises(ValueError, match="a Braidstream address is") as caught:
        Braid(url)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_rollout_id_that_is_no_part_of_a_path_is_refused(name: str) -> None:
    """HTTP clients take dots out of paths: calls would reach another branch."""
    with pytest.raises(ValueError, match="no rollout id"):
        Braid("http://127.0.0.1:1").rollout(name)
