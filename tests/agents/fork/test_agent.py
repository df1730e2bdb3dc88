"""The coding agent against a server that plays both protocols: streams, tools, trouble, budgets, ends."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from agents.fork.budget import Budgets
from agents.fork.retry import ATTEMPTS
from agents.fork.runner import Sampling
from agents.importers.slices import MAX_TEXT
from agents.models.anthropic_adapter import AnthropicModel
from agents.models.model import Model, SamplingParameters
from agents.models.openai_adapter import OpenAIModel
from agents.models.service import ServiceOptions
from agents.training.messages import conversation, given_messages
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.events import AgentEvents
from tests.agents.fork.forks import ListLog, run_all, runner, whole
from tests.model_server import (
    ModelServer,
    Play,
    Protocol,
    Said,
    model_server,
    refusal,
    reply,
    text,
    thinking,
    turns,
    use,
)

DONE = [text("Done.")]

NOON = 1_893_499_200.0
"""Tue, 01 Jan 2030 12:00:00 GMT."""

MODELS: dict[Protocol, Any] = {"messages": AnthropicModel, "chat": OpenAIModel}


class Maker:
    """Makes models of servers that play as they are told, over one protocol."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.opened: list[Any] = []

    def __call__(self, play: Play, **service: Any) -> tuple[ModelServer, Model]:
        context = model_server(play)
        api = context.__enter__()
        options = ServiceOptions(api.base_url(self.protocol), **service)
        made = MODELS[self.protocol]("test-model", options, api_key="k", clock=lambda: NOON)
        self.opened.append((context, made))
        return api, made

    async def close(self) -> None:
        for context, made in self.opened:
            await made.close()
            context.__exit__(None, None, None)


@pytest.fixture
async def model() -> AsyncIterator[Maker]:
    """Makes models of the Messages API."""
    maker = Maker("messages")
    yield maker
    await maker.close()


@pytest.fixture(params=MODELS)
async def either(request: pytest.FixtureRequest) -> AsyncIterator[Maker]:
    """Makes models of one protocol, then of the other."""
    maker = Maker(request.param)
    yield maker
    await maker.close()


async def test_the_model_sees_exactly_what_will_be_trained_on(tmp_path: Path, model: Maker) -> None:
    """Parallel calls, long and failed outputs and secrets: the tool messages of the API's requests are those of the rows."""
    key = "sk-ant-api03-" + "A1b2C3d4" * 11 + "AA"
    api, asked = model(
        turns(
            [{"type": "text", "text": "Looking."}, use("read_file", 1, path="table.py"), use("read_file", 2, path="nope")],
            [use("run", 3, command=f"seq 3000; echo key={key}; exit 4"), use("run", 4, command="yes é | head -30000 > big.txt")],
            [use("read_file", 5, path="big.txt"), use("search", 6, pattern="parse", path="."), use("list_files", 7, path=".")],
            [use("edit_file", 8, path="table.py", old="splitlines", new="split"), use("nothing", 9), use("run", 10, command=5)],
            DONE,
        )
    )  # fmt: skip
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        [result] = await run_all(forked)
    assert (result.status, result.steps) == ("answered", 5)
    whole(log, 1)
    seen = {
        part["tool_use_id"]: part["content"]
        for message in api.bodies[-1]["messages"]
        for part in message["content"]
        if part["type"] == "tool_result"
    }
    record = log.record(forked.opened)
    trained = conversation(record, given_messages(record.task, forked.opened)).messages
    assert [message.content for message in trained if message.role == "tool"] == list(seen.values())
    assert record.observed == "summarized"
    assert trained[0].content == api.bodies[-1]["system"][0]["text"]
    assert trained[1].content == api.bodies[-1]["messages"][0]["content"][0]["text"]
    assert [len(message.tool_calls) for message in trained if message.tool_calls] == [2, 2, 3, 3]
    assert key not in str(seen)
    assert "lines omitted" in seen["toolu_3"]
    assert seen["toolu_3"].endswith("[exit code 4]")
    assert "go on with first_line=" in seen["toolu_5"]
    assert [part["is_error"] for part in api.bodies[1]["messages"][2]["content"]] == [False, True]
    files = SnapshotStore(tmp_path / "snapshots").load(record.workspace)  # type: ignore[arg-type]
    assert b"text.split()" in files["table.py"].content


async def test_prompts_are_cached_and_temperatures_sent(tmp_path: Path, model: Maker) -> None:
    """The system prompt, the last tool and the end of the conversation are marked; a model without temperature gets none."""

    async def play(body: dict[str, Any], number: int) -> Said:
        if "temperature" in body and number == 0:
            return refusal(400, "invalid_request_error: temperature")
        return await turns([use("list_files", 1, path=".")], DONE)(body, number)

    api, asked = model(play)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log, sampling=Sampling((0.7,), seed=3)) as forked:
        await run_all(forked)
    assert [body.get("temperature") for body in api.bodies] == [0.7, None, None]
    last = api.bodies[-1]
    assert last["system"][-1]["cache_control"] == last["tools"][-1]["cache_control"] == {"type": "ephemeral"}
    marked = [part for message in last["messages"] for part in message["content"] if "cache_control" in part]
    assert marked == [last["messages"][-1]["content"][-1]]
    assert last["stream"] is True
    record = log.record(forked.opened)
    assert (record.temperature, record.seed) == (0.7, None), "the API takes no seed, so none is claimed"
    assert record.usage is not None
    assert (record.usage.input_tokens, record.usage.output_tokens, record.usage.cached_tokens) == (210, 40, 10)


TROUBLE: dict[str, tuple[Callable[[], Said], str]] = {
    "429": (lambda: refusal(429, "rate_limit_error", retry_after="0"), "rate_limited"),
    "500": (lambda: refusal(500, "api_error"), "http_5xx"),
    "overloaded in the stream": (lambda: reply(DONE, error="overloaded_error"), "overloaded"),
    "529": (lambda: refusal(529, "overloaded_error"), "overloaded"),
    "cut after the first event": (lambda: reply(DONE, cut_after=1), "cut_stream"),
    "cut in a tool call": (lambda: reply([use("run", 1, command="echo never")], cut_after=4), "cut_stream"),
    "cut before the end": (lambda: reply(DONE, cut_after=2), "cut_stream"),
    "ended too early": (lambda: reply(DONE, silent_after=2), "cut_stream"),
    "garbage": (lambda: Response(b"event: x\ndata: {nonsense\n\n", media_type="text/event-stream"), "unparseable"),
    "an empty stream": (lambda: Response(b"", media_type="text/event-stream"), "empty_stream"),
}
"""The answer of the service, and its kind on the log. Made anew each time: a stream plays once."""


@pytest.mark.parametrize("name", TROUBLE)
async def test_trouble_that_passes_is_retried_and_on_the_log(tmp_path: Path, either: Maker, name: str) -> None:
    """Two bad answers before each turn; the branch answers, and every retry can be seen with its kind."""

    async def play(body: dict[str, Any], number: int) -> Said:
        return (
            TROUBLE[name][0]() if number % 3 != 2 else await turns([use("list_files", 1, path=".")], DONE)(body, number)
        )

    api, asked = either(play)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        [result] = await run_all(forked)
    assert (result.status, api.calls) == ("answered", 6)
    whole(log, 1)
    seen = [(data["step"], data["attempt"], data["kind"], data["action"]) for data in log.data("error_recovery")]
    kind = TROUBLE[name][1]
    assert seen == [(step, attempt, kind, "retry") for step in (1, 2) for attempt in (1, 2)]


async def test_trouble_that_stays_is_the_providers(tmp_path: Path, either: Maker) -> None:
    """After so many attempts the branch ends as infra_error with its reason: no failure of the agent, no empty answer."""
    _, asked = either(lambda body, number: _later(refusal(529, "overloaded_error")))
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        [result] = await run_all(forked)
    assert result.status == "infra_error"
    assert f"overloaded after {ATTEMPTS} attempts" in str(result.error)
    assert [data["action"] for data in log.data("error_recovery")] == ["retry"] * (ATTEMPTS - 1) + ["give_up"]
    record = log.record(forked.opened)
    assert (record.status, record.final_answer) == ("infra_error", None)


async def _later(response: Said) -> Said:
    return response


async def test_a_wrong_key_is_not_retried(tmp_path: Path, either: Maker) -> None:
    """An error that no retry can help is given up at once."""
    api, asked = either(lambda body, number: _later(refusal(401, "authentication_error")))
    async with runner(tmp_path, lambda _: asked, ListLog()) as forked:
        [result] = await run_all(forked)
    assert (result.status, api.calls) == ("infra_error", 1)


@pytest.mark.parametrize("after", ["1", "Tue, 01 Jan 2030 12:00:01 GMT"])
async def test_retry_after_is_respected(tmp_path: Path, model: Maker, after: str) -> None:
    """The service's own wait counts, not ours, in seconds or as a date."""

    async def play(body: dict[str, Any], number: int) -> Said:
        return refusal(429, "rate_limit_error", retry_after=after) if number == 0 else reply(DONE)

    _, asked = model(play)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        await run_all(forked)
    assert log.data("error_recovery")[0]["waitMs"] >= 1000


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (lambda: reply([{"type": "text", "text": " \n"}]), "without an answer"),
        (lambda: reply([]), "without an answer"),
        (lambda: reply(DONE, "refusal"), "refused"),
        (lambda: reply(DONE, "max_tokens"), "cut off"),
    ],
)
async def test_no_answer_is_a_failure_with_its_reason(tmp_path: Path, either: Maker, response: Any, says: str) -> None:
    """Nothing said, refused, or cut off: failed, never an empty answer."""
    _, asked = either(lambda body, number: _later(response()))
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        [result] = await run_all(forked)
    assert result.status == "failed"
    assert says in str(result.error)
    whole(log, 1)


async def test_a_call_that_was_cut_off_is_not_made(tmp_path: Path, model: Maker) -> None:
    """The model is told, and goes on."""

    async def play(body: dict[str, Any], number: int) -> Said:
        return reply([use("write_file", 1, path="x", content="ha")], "max_tokens") if number == 0 else reply(DONE)

    api, asked = model(play)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        [result] = await run_all(forked)
    assert result.status == "answered"
    assert "cut off" in api.bodies[1]["messages"][-1]["content"][0]["content"]
    assert "x" not in SnapshotStore(tmp_path / "snapshots").load(result.workspace)  # type: ignore[arg-type]


# -- budgets and ends ------------------------------------------------------------------------------------------------------

FOREVER = turns(*([[use("run", 1, command="true")]] * 60))


@pytest.mark.parametrize(
    ("budgets", "status", "says"),
    [
        (Budgets(steps=3, branch_s=60), "failed", "3 turns"),
        (Budgets(branch_tokens=300, branch_s=60), "failed", "the branch has 300"),
        (Budgets(total_tokens=300, branch_s=60), "aborted", "together"),
        (Budgets(branch_s=1.5), "aborted", "the branch's time"),
        (Budgets(branch_s=60, total_s=1.5), "aborted", "the fork's time"),
    ],
)
async def test_budgets_hold(tmp_path: Path, model: Maker, budgets: Budgets, status: str, says: str) -> None:
    """A branch that goes on for ever meets its limit and says which."""
    _, asked = model(FOREVER)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log, branches=2, budgets=budgets) as forked:
        results = await asyncio.wait_for(run_all(forked), 30)
    assert {result.status for result in results} == {status}
    assert all(says in str(result.error) for result in results)
    assert sum(result.tokens.total for result in results) <= (budgets.total_tokens or 10**6) + 2 * 125
    whole(log, 2)


async def test_a_service_that_never_answers_cannot_hang_a_branch(tmp_path: Path, either: Maker) -> None:
    """A turn has a time limit, and so has a branch."""

    async def play(_body: dict[str, Any], _number: int) -> Said:
        await asyncio.sleep(30)
        return reply(DONE)

    _, asked = either(play)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log, budgets=Budgets(branch_s=60, turn_s=0.3)) as forked:
        [result] = await asyncio.wait_for(run_all(forked), 20)
    assert (result.status, log.data("error_recovery")[0]["kind"]) == ("infra_error", "timeout")


async def test_stopping_ends_every_branch_as_aborted(tmp_path: Path, model: Maker) -> None:
    """Those that run and those that wait for a sandbox: each ends on the log, with the reason."""
    _, asked = model(FOREVER)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log, branches=4, slots=2) as forked:
        running = asyncio.create_task(run_all(forked))
        while len(log.facts) < 8:
            await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [log.slices(branch)[-1].status for branch in range(4)] == ["aborted"] * 4
    assert all("stopped" in str(log.slices(branch)[-1].error) for branch in range(4))
    whole(log, 4)


async def test_a_dead_sandbox_is_not_the_agents_failure(tmp_path: Path, model: Maker) -> None:
    """Its branch ends as infra_error; the next one has a new sandbox."""
    _, asked = model(turns([use("run", 1, command="echo 1")], DONE))
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log, branches=2, slots=1) as forked:
        create = forked.pool._create
        made: list[Any] = []

        async def breaking() -> Any:
            sandbox: Any = await create()
            if not made:
                sandbox._holder.process.kill()
            made.append(sandbox)
            return sandbox

        forked.pool._create = breaking
        results = await run_all(forked)
    assert [result.status for result in results] == ["infra_error", "answered"]
    assert "sandbox" in str(results[0].error)


async def test_eight_branches_through_a_storm(tmp_path: Path, either: Maker) -> None:
    """Half of all requests fail in one way or another: no branch hangs, no event is lost, what failed is on the log."""
    chance = random.Random(5)
    script = turns(
        [use("read_file", 1, path="table.py"), use("run", 2, command="echo hi")],
        [use("write_file", 3, path="table.py", content="x = 1\n")],
        DONE,
    )

    async def play(body: dict[str, Any], number: int) -> Said:
        if chance.random() < 0.5:
            return chance.choice(list(TROUBLE.values()))[0]()
        return await script(body, number)

    api, asked = either(play)
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log, branches=8, slots=4) as forked:
        results = await asyncio.wait_for(run_all(forked), 90)
    whole(log, 8)
    assert {result.status for result in results} <= {"answered", "infra_error"}
    assert sum(result.status == "answered" for result in results) >= 5
    turns_taken = sum(len(log.data("model_done", branch)) for branch in range(8))
    assert turns_taken + sum(len(log.data("error_recovery", branch)) for branch in range(8)) == api.calls


def test_a_request_has_no_default_sampling() -> None:
    """Parameters that were not chosen are not sent."""
    assert set(SamplingParameters()) == {None, ()}


async def test_stopped_at_any_moment_a_branch_ends_once(tmp_path: Path, model: Maker) -> None:
    """While it waits, asks, runs, or is just ending: one end on the log, no seq twice."""
    _, asked = model(turns([use("run", 1, command="true")], [use("write_file", 2, path="x", content="y")], DONE))
    chance = random.Random(1)
    for number in range(10):
        log = ListLog()
        async with runner(tmp_path / str(number), lambda _: asked, log, branches=2, slots=1) as forked:
            running = asyncio.create_task(run_all(forked))
            await asyncio.sleep(chance.uniform(0.0, 0.7))
            running.cancel()
            await asyncio.wait([running])
        started = {one.branch_index for one in log.facts if isinstance(one, AgentEvents)}
        for branch in started:
            assert log.events(branch)[-1].event in ("error", "final_answer")


async def test_thinking_goes_back_unchanged(tmp_path: Path, model: Maker) -> None:
    """With its signature and in its place, in every later request of the tool loop."""
    first = [thinking("Hm.", "s1"), text("Looking."), use("list_files", 1, path="."), use("list_files", 2, path=".")]
    redacted = {"type": "redacted_thinking", "data": "opaque"}
    api, asked = model(turns(first, [redacted, use("list_files", 3, path=".")], DONE))
    async with runner(tmp_path, lambda _: asked, ListLog()) as forked:
        [result] = await run_all(forked)
    assert result.status == "answered"
    said = [message["content"] for message in api.bodies[-1]["messages"] if message["role"] == "assistant"]
    assert said == [first, [redacted, use("list_files", 3, path=".")]]


@pytest.mark.parametrize("send", [True, False])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_only_where_it_is_wanted(tmp_path: Path, send: bool, field: str) -> None:
    """Over chat completions, under the name by which the server wrote it."""
    maker = Maker("chat")
    api, asked = maker(
        turns([thinking("Hm."), use("list_files", 1, path=".")], DONE, reasoning_field=field), send_reasoning=send
    )
    async with runner(tmp_path, lambda _: asked, ListLog()) as forked:
        [result] = await run_all(forked)
    await maker.close()
    assert result.status == "answered"
    sent = api.bodies[1]["messages"][2]
    assert {name: sent[name] for name in sent if name.startswith("reasoning")} == ({field: "Hm."} if send else {})


async def test_parallel_calls_over_chat_completions(tmp_path: Path) -> None:
    """Deltas of several calls come mixed; each call is made, answered by its id, and a seed is sent and recorded."""
    maker = Maker("chat")
    api, asked = maker(
        turns(
            [text("Both."), use("read_file", 1, path="table.py"), use("read_file", 2, path="nope")],
            [use("run", 3, command="echo hi")],
            DONE,
        )
    )
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log, sampling=Sampling((0.7,), seed=3)) as forked:
        [result] = await run_all(forked)
    await maker.close()
    whole(log, 1)
    assert (result.status, result.steps) == ("answered", 3)
    sent = api.bodies[-1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == [
        "toolu_1",
        "toolu_2",
        "toolu_3",
    ]
    calls = [call["function"]["arguments"] for call in sent[2]["tool_calls"]]
    assert calls == ['{"path": "table.py"}', '{"path": "nope"}'], "the model's own text, spaces included"
    record = log.record(forked.opened)
    trained = conversation(record, given_messages(record.task, forked.opened)).messages
    tools = [message["content"] for message in sent if message["role"] == "tool"]
    assert [message.content for message in trained if message.role == "tool"] == tools
    assert {(body["seed"], body["temperature"], body["max_tokens"]) for body in api.bodies} == {(3, 0.7, 8192)}
    assert (record.temperature, record.seed) == (0.7, 3)
    assert record.usage is not None
    assert (record.usage.input_tokens, record.usage.output_tokens, record.usage.cached_tokens) == (315, 60, 15)


async def test_arguments_that_are_no_json_are_reported_and_never_replaced(tmp_path: Path, either: Maker) -> None:
    """The event keeps the model's text, the model is told, and its history stays one that servers take."""
    broken = {"type": "tool_use", "id": "toolu_1", "name": "run", "arguments": '{"command": "echo'}
    api, asked = either(turns([broken], DONE))
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        [result] = await run_all(forked)
    assert result.status == "answered"
    whole(log, 1)
    assert log.data("tool_call")[0]["args"] == '{"command": "echo'
    assert log.data("tool_result")[0]["error"]["code"] == "bad_arguments"
    [sent] = [message for message in api.bodies[1]["messages"] if message["role"] == "assistant"]
    kept = {"INVALID_JSON": '{"command": "echo'}
    if either.protocol == "messages":
        assert sent["content"][0]["input"] == kept
    else:
        assert json.loads(sent["tool_calls"][0]["function"]["arguments"]) == kept


async def test_a_content_filter_is_no_answer(tmp_path: Path) -> None:
    """The branch failed with its reason, whatever was said before."""
    maker = Maker("chat")
    _, asked = maker(lambda body, number: _later(reply(DONE, "content_filter")))
    async with runner(tmp_path, lambda _: asked, ListLog()) as forked:
        [result] = await run_all(forked)
    await maker.close()
    assert (result.status, result.error) == ("failed", "the provider's content filter stopped the model")


async def test_a_turn_of_many_calls_is_written_in_slices_of_good_size(tmp_path: Path, model: Maker) -> None:
    """Their outputs are told once more as messages, all at once, before the next call."""
    reads = [use("read_file", number, path="big.txt") for number in range(1, 61)]
    _, asked = model(turns([use("run", 0, command="yes $(seq -s ' ' 30) | head -c 14000 > big.txt")], reads, DONE))
    log = ListLog()
    async with runner(tmp_path, lambda _: asked, log) as forked:
        [result] = await run_all(forked)
    assert result.status == "answered", result.error
    whole(log, 1)
    sizes = [sum(len(event.data.encode()) for event in one.events) for one in log.slices() if len(one.events) > 1]
    assert sum(sizes) > 1024 * 1024
    assert max(sizes) <= MAX_TEXT
