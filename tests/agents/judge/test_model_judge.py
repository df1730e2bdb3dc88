"""A model as a judge, over both protocols, against a server that plays them: whatever comes back, no vote is ever invented."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from starlette.responses import Response, StreamingResponse

from agents.judge.answers import Answer
from agents.judge.judge import JudgeSetupError, JudgeTroubleError
from agents.judge.model_judge import JudgeOptions, ModelJudge
from agents.judge.prompt import prompt_of
from agents.judge.votes import Call
from agents.models.anthropic_adapter import AnthropicModel
from agents.models.openai_adapter import OpenAIModel
from agents.models.service import ServiceOptions
from schemas.judging import CONTENT_JUDGE
from tests.agents.judge.asking import request_of
from tests.model_server import ModelServer, Play, Protocol, Said, answer, model_server, prefers, refusal, reply, text

PROMPT = prompt_of(request_of(), Call("ab", 0))
GOOD = {"preferred": "b", "reasoning": "B ran the tests; A {only} claims it."}


Asking = Callable[..., Awaitable[Answer]]

MODELS: dict[Protocol, Any] = {"messages": AnthropicModel, "chat": OpenAIModel}


class Waits:
    """Keeps how long a judge wanted to wait, and does not."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def judge_of(
    api: ModelServer,
    protocol: Protocol,
    allow: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **changes: Any,
) -> ModelJudge:
    model = MODELS[protocol]("judge-model", ServiceOptions(api.base_url(protocol)), api_key="test", clock=clock)
    options = JudgeOptions(timeout_s=5.0, longest_wait_s=0.05)._replace(**changes)
    return ModelJudge(model, options, sleep, allow)


async def asked_over(protocol: Protocol, api: ModelServer, *words: Any, **changes: Any) -> Answer:
    judge = judge_of(api, protocol, *words, **changes)
    try:
        return await judge.ask(PROMPT)
    finally:
        await judge.close()


@pytest.fixture(params=MODELS)
def ask(request: pytest.FixtureRequest) -> Asking:
    """Asks a judge, once over each protocol."""

    return partial(asked_over, request.param)


def always(make: Callable[[], Said]) -> Play:
    async def play(_body: dict[str, Any], _number: int) -> Said:
        return make()

    return play


def in_turn(*answers: Callable[[], Said]) -> Play:
    async def play(_body: dict[str, Any], number: int) -> Said:
        return answers[min(number, len(answers) - 1)]()

    return play


async def test_a_usable_answer_comes_back_with_what_it_used(ask: Asking) -> None:
    """The temperature is low; usage and cost are recorded."""
    with model_server(always(lambda: answer(GOOD))) as api:
        found = await ask(api, usd_per_mtok_in=3.0, usd_per_mtok_out=15.0)
    assert (found.letter, found.reasoning) == ("b", GOOD["reasoning"])
    assert found.usage is not None
    assert found.usage.model_dump() == {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 5, "usd": 0.0006}
    (body,) = api.bodies
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("judge-model", 0.1, 1024)
    assert "stream" not in body


async def test_the_answers_form_is_forced() -> None:
    """A tool that must be called, or a strict schema; nothing but the prompt is sent beside it."""
    with model_server(always(lambda: answer(GOOD))) as api:
        for protocol in MODELS:
            assert (await asked_over(protocol, api)).letter == "b"
    body, chat = api.bodies
    assert body["tool_choice"] == {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}
    assert body["tools"][0]["input_schema"] == PROMPT.answer_schema
    user = {"role": "user", "content": PROMPT.user}
    assert (body["system"], body["messages"]) == (PROMPT.system, [user])
    form = {"name": "answer", "strict": True, "schema": PROMPT.answer_schema}
    assert chat["response_format"] == {"type": "json_schema", "json_schema": form}
    assert chat["messages"] == [{"role": "system", "content": PROMPT.system}, user]


UNUSABLE: dict[str, Callable[[], Said]] = {
    "not json": lambda: Response("{ not json", media_type="application/json"),
    "html": lambda: Response("<html>busy</html>", media_type="text/html"),
    "empty": lambda: Response("", media_type="application/json"),
    "an array": lambda: Response("[]", media_type="application/json"),
    "no content": lambda: Response('{"type":"message"}', media_type="application/json"),
    "null content": lambda: Response('{"content":null,"usage":7}', media_type="application/json"),
    "prose": lambda: reply([text('Here: {"preferred":"a","reasoning":"x"}')]),
    "cut off": lambda: answer({"reasoning": "it beg"}, stop="max_tokens"),
    "another letter": lambda: answer({"preferred": "A", "reasoning": "x"}),
    "more fields": lambda: answer(GOOD | {"score": 5}),
    "two answers": lambda: reply(
        [{"type": "tool_use", "id": str(n), "name": "answer", "input": GOOD} for n in range(2)], "tool_use"
    ),
}


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_an_unusable_answer_is_asked_for_twice_more(ask: Asking, kind: str) -> None:
    """Then it is a cause; a good third answer counts."""
    with model_server(always(UNUSABLE[kind])) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert (trouble.value.cause, api.calls) == ("unparseable", 3)
    with model_server(in_turn(UNUSABLE[kind], UNUSABLE[kind], lambda: answer(GOOD))) as api:
        assert (await ask(api)).letter == "b"


@pytest.mark.parametrize(
    "made", [lambda: answer(GOOD, name="other"), lambda: reply([text('{"preferred":"a","reasoning":"x"}')])]
)
async def test_only_the_forced_tool_of_the_messages_api_answers(made: Callable[[], Said]) -> None:
    """Another tool, or text beside it, is no answer."""
    with model_server(always(made)) as api, pytest.raises(JudgeTroubleError) as trouble:
        await asked_over("messages", api)
    assert (trouble.value.cause, api.calls) == ("unparseable", 3)


async def test_what_unusable_answers_used_is_recorded(ask: Asking) -> None:
    """Tokens of all calls add up, also when nothing came of them."""
    with model_server(always(UNUSABLE["cut off"])) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert trouble.value.usage is not None
    assert (trouble.value.usage.input_tokens, trouble.value.usage.usd) == (300, None)


async def test_a_refusal_is_not_asked_again(ask: Asking) -> None:
    """The model's word that it will not judge is a cause at once."""
    with model_server(always(lambda: reply([], "refusal"))) as api, pytest.raises(JudgeTroubleError) as trouble:
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
async def test_a_busy_service_is_waited_for_and_then_given_up(ask: Asking, status: int, kind: str, cause: str) -> None:
    """Five calls in all; one that succeeds in between counts."""
    with model_server(always(lambda: refusal(status, kind))) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert (trouble.value.cause, api.calls) == (cause, 5)
    with model_server(in_turn(lambda: refusal(status, kind), lambda: answer(GOOD))) as api:
        assert (await ask(api)).letter == "b"


async def test_a_connection_that_is_cut_is_tried_again(ask: Asking) -> None:
    """In the middle of an answer: a cause after five calls, never a crash; one that succeeds in between counts."""
    with model_server(always(lambda: reply([], cut_after=1))) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert (trouble.value.cause, api.calls) == ("unknown", 5)
    with model_server(in_turn(lambda: reply([], cut_after=1), lambda: answer(GOOD))) as api:
        assert (await ask(api)).letter == "b"


async def test_retry_after_is_honoured_up_to_the_limit(ask: Asking) -> None:
    """A server that asks for one second gets it; one that asks for an hour gets the limit."""
    for after, longest, expected in (("1", 5.0, 1.0), ("3600", 0.2, 0.2)):
        busy = in_turn(lambda after=after: refusal(429, "rate_limit_error", retry_after=after), lambda: answer(GOOD))  # type: ignore[misc]
        with model_server(busy) as api:
            waits = Waits()
            assert (await ask(api, longest_wait_s=longest, sleep=waits)).letter == "b"
            assert waits.seconds == [expected]


async def test_retry_after_may_be_a_date(ask: Asking) -> None:
    """The wait is what is left until then by our clock, up to the same limit; a date that has passed is no wait."""
    noon, date = 1_893_499_200.0, "Tue, 01 Jan 2030 12:00:01 GMT"
    for now, longest, expected in ((noon, 5.0, 1.0), (noon - 3600, 0.2, 0.2), (noon + 9, 5.0, 0.0)):
        busy = in_turn(lambda: refusal(503, "api_error", retry_after=date), lambda: answer(GOOD))
        with model_server(busy) as api:
            waits = Waits()
            assert (await ask(api, longest_wait_s=longest, clock=lambda now=now: now, sleep=waits)).letter == "b"
            assert waits.seconds == [expected]


async def test_a_hanging_call_is_a_timeout_and_is_not_paid_for_again(ask: Asking) -> None:
    """Silence does not hold the judge longer than its time-out; one call is made."""

    async def hang(_body: dict[str, Any], _number: int) -> Said:
        await asyncio.sleep(3)
        return answer(GOOD)

    with model_server(hang) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api, timeout_s=0.3)
    assert (trouble.value.cause, api.calls) == ("timeout", 1)


@pytest.mark.parametrize("pause", [30.0, 0.05])
async def test_a_stream_that_hangs_or_dribbles_is_a_timeout(ask: Asking, pause: float) -> None:
    """A body that begins and never ends, silent or byte by byte, is no answer: the time-out is for the call as a whole."""

    async def body() -> AsyncIterator[bytes]:
        yield b'{"type":"message","content":['
        for _ in range(60):
            await asyncio.sleep(pause)
            yield b" "

    dribbling = always(lambda: StreamingResponse(body(), media_type="application/json"))
    with model_server(dribbling) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api, timeout_s=0.5)
    assert (trouble.value.cause, api.calls) == ("timeout", 1)


async def test_a_slow_answer_within_its_time_counts(ask: Asking) -> None:
    """Slow is not missing: the answer is the answer."""

    async def slow(_body: dict[str, Any], _number: int) -> Said:
        await asyncio.sleep(0.5)
        return answer(GOOD | {"reasoning": 'it has {"preferred": "a"} in it'})

    with model_server(slow) as api:
        found = await ask(api, timeout_s=5.0)
    assert (found.letter, found.reasoning, api.calls) == ("b", 'it has {"preferred": "a"} in it', 1)


async def test_nobody_there_is_a_cause_too(ask: Asking) -> None:
    """A refused connection is tried again, then given up."""
    with model_server(prefers("a")) as api:
        pass
    with pytest.raises(JudgeTroubleError) as trouble:
        await ask(api)
    assert trouble.value.cause == "unknown"


async def test_a_spent_budget_makes_no_call(ask: Asking) -> None:
    """Retries count, too."""
    left = iter([True, True, False])
    with model_server(always(UNUSABLE["empty"])) as api, pytest.raises(JudgeTroubleError) as trouble:
        await ask(api, allow=lambda: next(left))
    assert (trouble.value.cause, api.calls) == ("budget", 2)


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_a_wrong_key_or_model_is_no_vote(ask: Asking, status: int) -> None:
    """All calls would end like that, so it is an error of the setup."""
    with model_server(always(lambda: refusal(status, "authentication_error"))) as api, pytest.raises(JudgeSetupError):
        await ask(api)
    assert api.calls == 1


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("invalid_request_error", "Your credit balance is too low to access the API. Please go to Plans & Billing."),
        ("billing_error", "There is a problem with the account."),
    ],
)
async def test_an_account_without_credit_is_no_vote(ask: Asking, kind: str, said: str) -> None:
    """A 400 about the account says nothing about the question: an error of the setup after one call, with its words."""
    with (
        model_server(always(lambda: refusal(400, kind, said))) as api,
        pytest.raises(JudgeSetupError, match=said.partition(".")[0]),
    ):
        await ask(api)
    assert api.calls == 1


async def test_a_model_that_takes_no_temperature_is_asked_without(ask: Asking) -> None:
    """After a 400 the temperature is left out; a 400 that stays is a refusal."""

    async def picky(body: dict[str, Any], _number: int) -> Said:
        return refusal(400, "invalid_request_error") if "temperature" in body else answer(GOOD)

    with model_server(picky) as api:
        assert (await ask(api)).letter == "b"
    assert ["temperature" in body for body in api.bodies] == [True, False]
    with model_server(always(lambda: refusal(400, "invalid_request_error"))) as api:
        with pytest.raises(JudgeTroubleError) as trouble:
            await ask(api)
        assert (trouble.value.cause, api.calls) == ("refused", 2)


def test_a_judge_cannot_have_the_name_of_ties_by_content() -> None:
    """Its votes could not be told from them."""
    with pytest.raises(JudgeSetupError, match="ties by content"):
        ModelJudge(OpenAIModel(CONTENT_JUDGE, ServiceOptions(), api_key="test"), JudgeOptions(), asyncio.sleep)
