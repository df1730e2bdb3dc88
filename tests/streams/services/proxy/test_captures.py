"""Captures from the wire to rows: identity, ends, tracers, tokens, secrets, and what happens while the broker is away."""

import asyncio
import json
import os
import uuid
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from schemas.captures import Capture
from schemas.events import AgentEvents
from streams.cluster.config import Settings, Token, Upstream
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.letters import read_letter
from streams.log.topics import AGENT_EVENTS, CAPTURES, DEAD_LETTERS
from streams.services.proxy.spool import FRAME
from tests.live import read_all, records_of, until
from tests.model_server import ModelServer, model_server, reply, text
from tests.processes import run_braid
from tests.streams.services.proxy.played_api import PlayedApi, played_api
from tests.streams.services.proxy.proxying import folding, gateway_of, proxying, with_proxy

pytestmark = pytest.mark.kafka

TIMES = {"status": 200, "started_ms": 5, "latency_ms": 2}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def api() -> Iterator[ModelServer]:
    async def play(_body: dict[str, Any], number: int) -> Any:
        return reply([text(f"answer {number}")])

    with model_server(play) as api:
        yield api


@pytest.fixture(scope="module")
def house(cluster: Settings, api: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The settings that these tests share; every test has rollouts of its own."""
    shared = cluster.model_copy(update={"prefix": f"t{uuid.uuid4().hex[:8]}.", "partitions": 4})
    shared = shared.model_copy(update={"capture": shared.capture.model_copy(update={"idle_s": 2.0})})
    return with_proxy(shared, tmp_path_factory.mktemp("spool"), api.url)


@pytest.fixture(scope="module")
def url(house: Settings) -> Iterator[str]:
    with proxying(house) as url, folding(house):
        yield url


@pytest.fixture
def rollout() -> str:
    return f"r-{uuid.uuid4().hex[:8]}"


def ask(place: str, **more: Any) -> httpx.Response:
    return httpx.post(f"{place}/openai/v1/chat/completions", json=CHAT | more.pop("body", {}), timeout=30, **more)


async def slices(settings: Settings, rollout: str, ended: int = 1) -> list[AgentEvents]:
    """The slices of a rollout, once so many of its attempts have ended."""
    found: list[AgentEvents] = []

    async def there() -> bool:
        read = await records_of(settings, AGENT_EVENTS)
        found[:] = [piece for piece in read if isinstance(piece, AgentEvents) and piece.rollout_id == rollout]
        return sum(piece.ended for piece in found) >= ended

    await until(there, f"{ended} ended", 60)
    return found


async def letters(settings: Settings, rollout: str) -> list[str]:
    found = [
        read_letter(each.key, each.value, each.headers)
        for each in await read_all(settings, settings.prefix + DEAD_LETTERS.name)
    ]
    return [letter.reason for letter in found if letter.key == rollout.encode()]


async def test_path_and_headers_name_the_branch_and_none_is_a_400_that_says_how(
    url: str, house: Settings, rollout: str
) -> None:
    assert ask(f"{url}/r/{rollout}/b/2/a/1").status_code == 200
    assert ask(url, headers={"X-Braid-Rollout": rollout, "X-Braid-Branch": "3"}).status_code == 200
    refused = ask(url)
    assert (refused.status_code, "X-Braid-Rollout" in refused.text) == (400, True)
    assert ask(f"{url}/r/{rollout}/b/x").status_code == 400
    assert httpx.post(f"{url}/nowhere/v1/messages").status_code == 404
    for place in ("2/a/1", "3"):
        assert (
            httpx.post(f"{url}/r/{rollout}/b/{place}/end", json={"status": "answered", "answer": "42"}).status_code
            == 202
        )
    found = await slices(house, rollout, 2)
    assert {(piece.branch_index, piece.attempt) for piece in found} == {(2, 1), (3, 0)}
    assert {piece.status for piece in found if piece.ended} == {"answered"}


async def test_a_branch_that_nobody_ends_is_over_when_nothing_comes(url: str, house: Settings, rollout: str) -> None:
    ask(f"{url}/r/{rollout}/b/0")
    found = await slices(house, rollout)
    ends = [
        each
        for each in await records_of(house, CAPTURES)
        if isinstance(each, Capture) and each.rollout_id == rollout and each.kind == "end"
    ]
    assert [(each.source, json.loads(each.body)["reason"]) for each in ends] == [("fold", "idle")]
    assert found[-1].status == "answered"


async def test_a_branch_is_shown_while_it_runs(house: Settings, api: ModelServer, tmp_path: Path, rollout: str) -> None:
    patient = with_proxy(house.model_copy(update={"prefix": f"{house.prefix}p."}), tmp_path / "spool", api.url)
    patient = patient.model_copy(update={"capture": patient.capture.model_copy(update={"idle_s": 600.0})})
    env = os.environ | {
        "BRAID_KAFKA": patient.kafka, "BRAID_REGISTRY": patient.registry, "BRAID_PREFIX": patient.prefix,
        "BRAID_PARTITIONS": str(patient.partitions), "BRAID_STATE_DIR": str(tmp_path),
    }  # fmt: skip
    with proxying(patient) as url, folding(patient):
        ask(f"{url}/r/{rollout}/b/0")
        words = ("tail", "agent-events", "--from-beginning", "--rollout", rollout, "--limit", "1", "--json")
        told = json.loads((await asyncio.to_thread(run_braid, *words, env=env)).stdout)
        shown = (await asyncio.to_thread(run_braid, "show", rollout, env=env)).stdout
        branch = (await asyncio.to_thread(run_braid, "show", rollout, "--branch", "0", env=env)).stdout
    assert "model_call" in json.dumps(told)
    assert "running" in shown
    assert "hi" in branch


async def test_a_call_after_the_end_is_a_late_dead_letter(url: str, house: Settings, rollout: str) -> None:
    place = f"{url}/r/{rollout}/b/0"
    ask(place)
    httpx.post(f"{place}/end")
    await slices(house, rollout)
    ask(place)

    async def late() -> bool:
        return await letters(house, rollout) == ["late"]

    await until(late, "a late letter")
    assert sum(piece.ended for piece in await slices(house, rollout)) == 1


async def test_a_tracers_captures_are_taken_once_and_bad_ones_are_named(
    url: str, house: Settings, rollout: str
) -> None:
    response = {"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}
    items = [
        {"kind": "call", "id": "1", "protocol": "openai-chat", "request": CHAT, "response": response, **TIMES},
        {"kind": "event", "id": "2", "at_ms": 9, "event": {"event": "tool_call", "data": {"toolName": "t", "args": {}, "callId": "c"}}},
        {"kind": "event", "id": "3", "event": {"event": "x"}},
        {"kind": "span", "id": "4"},
        {"kind": "end", "id": "5", "status": "answered", "answer": "ok"},
    ]  # fmt: skip
    place = f"{url}/v1/rollouts/{rollout}/branches/0/captures?attempt=1"
    answer = httpx.post(place, json=items)
    assert (answer.status_code, answer.json()["accepted"]) == (207, 3)
    assert [(each["index"], each["field"]) for each in answer.json()["errors"]] == [(2, "event.data"), (3, "kind")]
    lines = "\n".join(json.dumps(each) for each in items if each["id"] in "12")
    assert httpx.post(place, content=lines, headers={"content-type": "application/x-ndjson"}).json()["accepted"] == 2
    found = await slices(house, rollout)
    kinds = [event.event for piece in found for event in piece.events]
    assert kinds == ["message", "message", "model_call", "tool_call", "final_answer"]
    assert found[-1].attempt == 1
    assert await letters(house, rollout) == [], "repetitions are ignored, even after the end"


async def test_captures_are_read_again_into_another_rollout(url: str, house: Settings, rollout: str) -> None:
    from streams.jobs.captured_again import fold_again

    ask(f"{url}/r/{rollout}/b/0")
    httpx.post(f"{url}/r/{rollout}/b/0/end")
    before = await slices(house, rollout)
    async with FactWriter(house, "test") as writer, KafkaReader(house) as log:
        found = await fold_again(log, [rollout], "again-", writer.write)
    assert (found.rollouts, found.branches, found.unended) == (1, 1, 0)
    after = await slices(house, f"again-{rollout}")
    assert [piece.model_copy(update={"rollout_id": rollout}) for piece in after] == before


@pytest.fixture
async def played() -> AsyncIterator[PlayedApi]:
    async with played_api() as api:
        yield api


def guarded(house: Settings, upstream: str, spool: Path, **changes: Any) -> Settings:
    tokens = (
        Token(token=SecretStr("bound-token"), roles=("agent",), rollout="mine", branch=1),
        Token(token=SecretStr("viewer-token"), roles=("verifier",)),
    )
    made = with_proxy(house, spool, upstream, **changes)
    upstreams = {"openai": Upstream(url=upstream, key_variable="TEST_UPSTREAM_KEY")}
    made = made.model_copy(update={"proxy": made.proxy.model_copy(update={"upstreams": upstreams})})
    return made.model_copy(update={"gateway": made.gateway.model_copy(update={"tokens": tokens})})


async def test_a_token_as_the_api_key_names_the_branch_and_the_upstream_gets_its_own_key(
    house: Settings, played: PlayedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_UPSTREAM_KEY", "sk-upstream")
    with proxying(guarded(house, played.url, tmp_path)) as url:

        async def status(place: str, **headers: str) -> int:
            return (await asyncio.to_thread(ask, url + place, headers=headers)).status_code

        assert await status("", authorization="Bearer bound-token") == 200
        assert played.requests[-1][1]["authorization"] == "Bearer sk-upstream"
        assert await status("", authorization="Bearer sk-theirs", **{"x-braid-token": "bound-token"}) == 200
        assert played.requests[-1][1]["authorization"] == "Bearer sk-theirs"
        assert await status("/r/mine/b/1", authorization="Bearer bound-token") == 200
        assert await status("/r/mine/b/0", authorization="Bearer bound-token") == 403
        assert await status("/r/mine/b/1", authorization="Bearer viewer-token") == 403
        assert await status("/r/mine/b/1", authorization="Bearer nobody") == 401
        assert await status("/r/mine/b/1") == 401


async def test_conversations_without_identity_are_adopted_by_their_opening(
    house: Settings, api: ModelServer, tmp_path: Path
) -> None:
    def talk(url: str, opening: str) -> None:
        messages = [{"role": "user", "content": opening}]
        for _ in range(2):
            told = ask(url, body={"messages": messages}).json()
            messages += [told["choices"][0]["message"], {"role": "user", "content": "go on"}]

    adopting = with_proxy(house, tmp_path, api.url, adopt=True)
    opening = uuid.uuid4().hex
    with proxying(adopting) as url:
        talk(url, opening)
        talk(url, opening)
        talk(url, opening + "?")
    with proxying(adopting) as url:
        talk(url, opening)
    found = [
        each
        for each in await records_of(house, CAPTURES)
        if isinstance(each, Capture) and each.kind == "call" and each.rollout_id.startswith("cap-")
    ]
    by_rollout: dict[str, list[int]] = {}
    for each in found:
        by_rollout.setdefault(each.rollout_id, []).append(each.branch_index)
    assert sorted(sorted(branches) for branches in by_rollout.values()) == [[0, 0], [0, 0, 1, 1, 2, 2]]


@pytest.mark.usefixtures("url")
async def test_while_the_broker_is_away_calls_go_on_and_all_captures_arrive_afterwards(
    house: Settings, api: ModelServer, tmp_path: Path, rollout: str
) -> None:
    away = with_proxy(house.model_copy(update={"kafka": "127.0.0.1:1"}), tmp_path, api.url)
    with proxying(away) as url:
        for branch in range(3):
            for _ in range(5):
                assert ask(f"{url}/r/{rollout}/b/{branch}").status_code == 200
        assert httpx.post(f"{url}/r/{rollout}/b/0/end").status_code == 202
    (journal,) = tmp_path.glob("*.captures")
    unknown = b"of another version"
    with journal.open("ab") as file:  # what cannot be read holds nothing up
        file.write(FRAME.pack(len(unknown), zlib.crc32(unknown)) + unknown)
    with proxying(with_proxy(house, tmp_path, api.url)) as url:
        for branch in (1, 2):
            assert httpx.post(f"{url}/r/{rollout}/b/{branch}/end").status_code == 202
        found = await slices(house, rollout, 3)
    calls = [event for piece in found for event in piece.events if event.event == "model_call"]
    assert len(calls) == 15
    assert sum(file.stat().st_size for file in tmp_path.glob("*.captures")) == 0


@pytest.fixture
def gateway(house: Settings, api: ModelServer, tmp_path: Path) -> Iterator[str]:
    """A gateway with the proxy in it."""
    with gateway_of(with_proxy(house, tmp_path, api.url)) as url:
        yield url


@pytest.mark.usefixtures("url")
async def test_the_gateway_is_the_proxy_and_refuses_slices_of_captured_branches(
    gateway: str, house: Settings, rollout: str
) -> None:
    events = f"{gateway}/v1/rollouts/{rollout}/branches/0/events?first_seq=0"
    event = [{"event": "final_answer", "data": {"answer": "forged"}}]
    streamed = ask(f"{gateway}/r/{rollout}/b/0", body={"stream": True})
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert streamed.headers.get_list("date", split_commas=False).__len__() == 1
    assert httpx.post(events, json=event).status_code == 409, "from the first call on"
    assert httpx.post(f"{events}&attempt=1", json=event).status_code == 409, (
        "it would take the place of what was captured"
    )
    other = events.replace("branches/0", "branches/1")
    assert httpx.post(other, json=event).status_code == 202
    end = {"kind": "end", "id": "z", "status": "answered"}
    assert httpx.post(f"{gateway}/v1/rollouts/{rollout}/branches/0/captures", json=[end]).json()["accepted"] == 1
    found = [piece for piece in await slices(house, rollout) if piece.branch_index == 0]
    assert [event.event for piece in found for event in piece.events] == ["message", "message", "model_call"]
