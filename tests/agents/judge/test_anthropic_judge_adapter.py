"""The model's adapter against a server that plays the API: whatever comes back, no vote is ever invented."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.responses import Response, StreamingResponse

from agents.judge.answers import Answer
from agents.judge.anthropic_judge_adapter import AnthropicJudge, ModelOptions
from agents.judge.judge import JudgeSetupError, JudgeTroubleError
from agents.judge.prompt import prompt_of
from agents.judge.votes import Call
from schemas.judging import CONTENT_JUDGE
from tests.agents.judge.asking import request_of
from tests.messages_api import MessagesApi, Play, answer, message, messages_api, prefers, refusal, streamed

PROMPT = prompt_of(request_of(), Call("ab", 0))
GOOD = {"preferred": "b", "reasoning": "B ran the tests; A {only} claims it."}


def options(api: MessagesApi, **changes: Any) -> ModelOptions:
    return ModelOptions("judge-model", base_url=api.url, timeout_s=5.0, longest_wait_s=0.05)._replace(**changes)


async def ask(api: MessagesApi, allow: Callable[[], bool] = lambda: True, **changes: Any) -> Answer:
    judge = AnthropicJudge(options(api, **changes), allow, api_key="test")
    try:
        return await judge.ask(PROMPT)
    finally:
        await judge.close()


def always(make: Callable[[], Response]) -> Play:
    async def play(_body: dict[str, Any], _number: int) -> Response:
        return make()

    return play


def in_turn(*answers: Callable[[], Response]) -> Play:
    async def play(_body: dict[str, Any], number: int) -> Response:
        return answers[min(number, len(answers) - 1)]()

    return play


async def test_a_usable_answer_comes_back_with_what_it_used() -> None:
    """The tool is forced, the temperature is low, nothing but the prompt is sent; usage and cost are recorded."""
    with messages_api(always(lambda: answer(GOOD))) as api:
        found = await ask(api, usd_per_mtok_in=3.0, usd_per_mtok_out=15.0)
    assert (found.letter, found.reasoning) == ("b", GOOD["reasoning"])
    assert found.usage is not None
    assert found.usage.model_dump() == {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 5, "usd": 0.0006}
    (body,) = api.bodies
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("judge-model", 0.1, 1024)
    assert body["tool_choice"] == {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}
    assert body["tools"][0]["input_schema"] == PROMPT.answer_schema
    assert (body["system"], body["messages"]) == (PROMPT.system, [{"role": "user", "content": PROMPT.user}])


UNUSABLE: dict[str, Callable[[], Response]] = {
    "not json": lambda: Response("{ not json", media_type="application/json"),
    "html": lambda: Response("<html>busy</html>", media_type="text/html"),
    "empty": lambda: Response("", media_type="application/json"),
    "an array": lambda: Response("[]", media_type="application/json"),
    "no content": lambda: Response('{"type":"message"}', media_type="application/json"),
    "null content": lambda: Response('{"content":null,"usage":7}', media_type="application/json"),
    "only text": lambda: message([{"type": "text", "text": '{"preferred":"a","reasoning":"x"}'}]),
    "cut off": lambda: answer({"reasoning": "it beg"}, stop="max_tokens"),
    "another letter": lambda: answer({"preferred": "A", "reasoning": "x"}),
    "more fields": lambda: answer(GOOD | {"score": 5}),
    "another tool": lambda: answer(GOOD, name="other"),
    "two answers": lambda: message(
        [{"type": "tool_use", "id": str(n), "name": "answer", "input": GOOD} for n in range(2)], "tool_use"
    ),
}


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_an_unusable_answer_is_asked_for_twice_more(kind: str) -> None:
    """Then it is a cause; a good third answer counts."""
    with messages_api(always(UNUSABLE[kind])) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert (trouble.value.cause, api.calls) == ("unparseable", 3)
    with messages_api(in_turn(UNUSABLE[kind], UNUSABLE[kind], lambda: answer(GOOD))) as api:
        assert (await ask(api)).letter == "b"


async def test_what_unusable_answers_used_is_recorded() -> None:
    """Tokens of all calls add up, also when nothing came of them."""
    with messages_api(always(UNUSABLE["cut off"])) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert trouble.value.usage is not None
    assert (trouble.value.usage.input_tokens, trouble.value.usage.usd) == (300, None)


async def test_a_refusal_is_not_asked_again() -> None:
    """The model's word that it will not judge is a cause at once."""
    with messages_api(always(lambda: message([], "refusal"))) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert (trouble.value.cause, api.calls) == ("refused", 1)


@pytest.mark.parametrize(
    ("status", "kind", "cause"),
    [
        (429, "rate_limit_error", "rate_limited"),
        (500, "api_error", "http_5xx"),
        (503, "api_error", "http_5xx"),
        (529, "overloaded_error", "http_5xx"),
    ],
)
async def test_a_busy_service_is_waited_for_and_then_given_up(status: int, kind: str, cause: str) -> None:
    """Five calls in all; one that succeeds in between counts."""
    with messages_api(always(lambda: refusal(status, kind))) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert (trouble.value.cause, api.calls) == (cause, 5)
    with messages_api(in_turn(lambda: refusal(status, kind), lambda: answer(GOOD))) as api:
        assert (await ask(api)).letter == "b"


async def test_a_connection_that_is_cut_is_tried_again() -> None:
    """In the middle of an answer: a cause after five calls, never a crash; one that succeeds in between counts."""
    with messages_api(always(lambda: streamed([], cut_after=1))) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert (trouble.value.cause, api.calls) == ("unknown", 5)
    with messages_api(in_turn(lambda: streamed([], cut_after=1), lambda: answer(GOOD))) as api:
        assert (await ask(api)).letter == "b"


async def test_retry_after_is_honoured_up_to_the_limit() -> None:
    """A server that asks for one second gets it; one that asks for an hour gets the limit."""
    for after, longest, at_least, at_most in (("1", 5.0, 1.0, 3.0), ("3600", 0.2, 0.2, 2.0)):
        busy = in_turn(lambda after=after: refusal(429, "rate_limit_error", retry_after=after), lambda: answer(GOOD))  # type: ignore[misc]
        with messages_api(busy) as api:
            began = time.monotonic()
            assert (await ask(api, longest_wait_s=longest)).letter == "b"
            assert at_least <= time.monotonic() - began < at_most


async def test_retry_after_may_be_a_date() -> None:
    """The wait is what is left until then by our clock, up to the same limit; a date that has passed is no wait."""
    noon, date = 1_893_499_200.0, "Tue, 01 Jan 2030 12:00:01 GMT"
    for now, longest, at_least, at_most in (
        (noon, 5.0, 1.0, 3.0),
        (noon - 3600, 0.2, 0.2, 2.0),
        (noon + 9, 5.0, 0, 1.0),
    ):
        busy = in_turn(lambda: refusal(503, "api_error", retry_after=date), lambda: answer(GOOD))
        with messages_api(busy) as api:
            judge = AnthropicJudge(options(api, longest_wait_s=longest), api_key="test", clock=lambda now=now: now)  # type: ignore[misc]
            began = time.monotonic()
            assert (await judge.ask(PROMPT)).letter == "b"
            assert at_least <= time.monotonic() - began < at_most
            await judge.close()


async def test_a_hanging_call_is_a_timeout_and_is_not_paid_for_again() -> None:
    """Silence does not hold the judge longer than its time-out; one call is made."""

    async def hang(_body: dict[str, Any], _number: int) -> Response:
        await asyncio.sleep(3)
        return answer(GOOD)

    with messages_api(hang) as api:
        began = time.monotonic()
        with pytest.raises(JudgeTroubleError) as trouble:
            await ask(api, timeout_s=0.3)
        assert time.monotonic() - began < 2
    assert (trouble.value.cause, api.calls) == ("timeout", 1)


@pytest.mark.parametrize("pause", [30.0, 0.05])
async def test_a_stream_that_hangs_or_dribbles_is_a_timeout(pause: float) -> None:
    """A body that begins and never ends, silent or byte by byte, is no answer: the time-out is for the call as a whole."""

    async def body() -> AsyncIterator[bytes]:
        yield b'{"type":"message","content":['
        for _ in range(60):
            await asyncio.sleep(pause)
            yield b" "

    with messages_api(always(lambda: StreamingResponse(body(), media_type="application/json"))) as api:
        began = time.monotonic()
        with pytest.raises(JudgeTroubleError) as trouble:
            await ask(api, timeout_s=0.5)
        assert time.monotonic() - began < 2
    assert (trouble.value.cause, api.calls) == ("timeout", 1)


async def test_a_slow_answer_within_its_time_counts() -> None:
    """Slow is not missing: the answer is the answer."""

    async def slow(_body: dict[str, Any], _number: int) -> Response:
        await asyncio.sleep(0.5)
        return answer(GOOD | {"reasoning": 'it has {"preferred": "a"} in it'})

    with messages_api(slow) as api:
        found = await ask(api, timeout_s=5.0)
    assert (found.letter, found.reasoning, api.calls) == ("b", 'it has {"preferred": "a"} in it', 1)


async def test_nobody_there_is_a_cause_too() -> None:
    """A refused connection is tried again, then given up."""
    with messages_api(prefers("a")) as api:
        pass
    with pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert trouble.value.cause == "unknown"


async def test_a_spent_budget_makes_no_call() -> None:
    """Retries count, too."""
    left = iter([True, True, False])
    with messages_api(always(UNUSABLE["empty"])) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api, allow=lambda: next(left))
    assert (trouble.value.cause, api.calls) == ("budget", 2)


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_a_wrong_key_or_model_is_no_vote(status: int) -> None:
    """All calls would end like that, so it is an error of the setup."""
    with messages_api(always(lambda: refusal(status, "authentication_error"))) as api, pytest.raises(JudgeSetupError):
        await ask(api)
    assert api.calls == 1


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("invalid_request_error", "Your credit balance is too low to access the API. Please go to Plans & Billing."),
        ("billing_error", "There is a problem with the account."),
    ],
)
async def test_an_account_without_credit_is_no_vote(kind: str, said: str) -> None:
    """A 400 about the account says nothing about the question: an error of the setup after one call, with its words."""
    with (
        messages_api(always(lambda: refusal(400, kind, said))) as api,
        pytest.raises(JudgeSetupError, match=said.partition(".")[0]),
    ):
        await ask(api)
    assert api.calls == 1


async def test_a_model_that_takes_no_temperature_is_asked_without() -> None:
    """After a 400 the temperature is left out; a 400 that stays is a refusal."""

    async def picky(body: dict[str, Any], _number: int) -> Response:
        return refusal(400, "invalid_request_error") if "temperature" in body else answer(GOOD)

    with messages_api(picky) as api:
        assert (await ask(api)).letter == "b"
    assert ["temperature" in body for body in api.bodies] == [True, False]
    with messages_api(always(lambda: refusal(400, "invalid_request_error"))) as api:
        with pytest.raises(JudgeTroubleError) as trouble:
            await ask(api)
        assert (trouble.value.cause, api.calls) == ("refused", 2)


def test_without_a_model_or_a_key_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the setting."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    with pytest.raises(JudgeSetupError, match="ANTHROPIC_API_KEY"):
        AnthropicJudge(ModelOptions("m"))
    with pytest.raises(JudgeSetupError, match="BRAID_EMISSION__JUDGE__MODEL"):
        AnthropicJudge(ModelOptions(""), api_key="test")
    with pytest.raises(JudgeSetupError, match="ties by content"):
        AnthropicJudge(ModelOptions(CONTENT_JUDGE), api_key="test")


@pytest.mark.parametrize(
    "url", ["notaurl", "ftp://here", "http://", "http://here:port", "http://[::1", "//here", "host:80"]
)
def test_an_address_that_is_no_url_is_refused_before_anything_is_asked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the setting that it stands in."""
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with pytest.raises(JudgeSetupError, match="BRAID_JUDGE__BASE_URL"):
        AnthropicJudge(ModelOptions("m", base_url=url), api_key="test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    with pytest.raises(JudgeSetupError, match="ANTHROPIC_BASE_URL"):
        AnthropicJudge(ModelOptions("m"), api_key="test")
    AnthropicJudge(ModelOptions("m", base_url="https://here/path"), api_key="test")


def test_a_password_in_a_bad_address_is_not_shown() -> None:
    """Only what follows it is."""
    with pytest.raises(JudgeSetupError) as error:
        AnthropicJudge(ModelOptions("m", base_url="me:hidden@here"), api_key="test")
    assert "here" in str(error.value)
    assert "hidden" not in str(error.value)
