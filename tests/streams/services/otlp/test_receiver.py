"""Export requests over HTTP, as exporters send them: on the log when they are answered, and folded into what an import gives."""

import asyncio
import gzip
import json
import random
import uuid
from collections.abc import Iterator

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from pydantic import SecretStr

from agents.importers.otlp.request_split import MAX_MEMBERS
from schemas.events import AgentEvents
from schemas.verdicts import CheckVerdict
from streams.cluster.config import Settings, Token
from streams.log.topics import AGENT_EVENTS, CAPTURES, CHECK_VERDICTS
from tests.agents.capture.span_captures import captures_of, folded
from tests.agents.capture.test_span_fold import bodies, chat
from tests.imports.otlp import event, request, span
from tests.live import records_of, until
from tests.streams.services.gateway.serving import with_gateway
from tests.streams.services.proxy.proxying import folding, gateway_of

pytestmark = pytest.mark.kafka

PROTOBUF = {"Content-Type": "application/x-protobuf", "User-Agent": "OTel-OTLP-Exporter-Python/1.45.0"}
TOKENS = (
    Token(token=SecretStr("agent-token"), roles=("agent",)),
    Token(token=SecretStr("bound-token"), roles=("agent",), rollout="mine", branch=1),
    Token(token=SecretStr("verifier-token"), roles=("verifier",)),
    Token(token=SecretStr("both-token"), roles=("verifier", "agent")),
)


@pytest.fixture(scope="module")
def house(cluster: Settings) -> Settings:
    settings = cluster.model_copy(update={"prefix": f"o{uuid.uuid4().hex[:8]}.", "partitions": 4})
    return settings.model_copy(update={"capture": settings.capture.model_copy(update={"trace_idle_s": 4.0})})


@pytest.fixture(scope="module")
def url(house: Settings) -> Iterator[str]:
    with gateway_of(with_gateway(house, tokens=TOKENS)) as url, folding(house):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=30, headers={"Authorization": "Bearer agent-token"}) as client:
        yield client


def trace() -> int:
    """A trace of this test alone."""
    return uuid.uuid4().int


def rollout_of(number: int) -> str:
    return f"otel-{number:032x}"


def slices(settings: Settings, *rollouts: str, branches: int = 1) -> dict[tuple[str, int, int], list[AgentEvents]]:
    """The slices of rollouts, once so many of their branches have ended."""
    found: dict[tuple[str, int, int], list[AgentEvents]] = {}

    async def ended() -> bool:
        found.clear()
        for each in await records_of(settings, AGENT_EVENTS):
            assert isinstance(each, AgentEvents)
            if each.rollout_id in rollouts:
                found.setdefault((each.rollout_id, each.branch_index, each.attempt), []).append(each)
        return sum(each.ended for parts in found.values() for each in parts) >= branches

    asyncio.run(until(ended, "branches ended", 60))
    return found


@pytest.mark.parametrize("dialect", ["gen_ai", "openinference"])
def test_bodies_of_exporters_give_the_slices_of_the_fold(client: httpx.Client, house: Settings, dialect: str) -> None:
    told = bodies(dialect)
    order = random.Random(3)
    sent = [*told, *order.sample(told, 4)]
    order.shuffle(sent)
    for number, body in enumerate(sent):
        packed = number % 2 == 0
        headers = PROTOBUF | ({"Content-Encoding": "gzip"} if packed else {})
        answer = client.post("/v1/traces", content=gzip.compress(body) if packed else body, headers=headers)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"] == "application/x-protobuf"
    expected = folded(captures_of(told))[0]
    (name,) = {place[0] for place in expected}
    assert slices(house, name, branches=4) == expected


def test_json_is_taken_with_hex_ids_and_enum_names(client: httpx.Client, house: Settings) -> None:
    number = trace()
    body = request(
        {**span(0, trace=number, attributes=chat("in json")), "kind": "SPAN_KIND_CLIENT", "unknown": [1]},
    )
    answer = client.post("/v1/traces", json=body)
    assert (answer.status_code, answer.json()) == (200, {})
    (found,) = slices(house, rollout_of(number)).values()
    assert "in json" in found[0].events[1].data
    assert found[-1].status == "answered"


def test_spans_without_ids_are_rejected_and_their_neighbours_taken(client: httpx.Client, house: Settings) -> None:
    number = trace()
    good = request(span(0, trace=number, attributes=chat()))
    made = ExportTraceServiceRequest()
    spans = made.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=b"short", span_id=b"12345678", name="bad")
    one = spans.add(
        trace_id=number.to_bytes(16, "big"),
        span_id=b"12345678",
        name="chat",
        start_time_unix_nano=1,
        end_time_unix_nano=2,
    )
    for key, value in chat().items():
        one.attributes.add(key=key).value.string_value = value
    answer = client.post("/v1/traces", content=made.SerializeToString(), headers=PROTOBUF)
    response = ExportTraceServiceResponse.FromString(answer.content)
    assert (answer.status_code, response.partial_success.rejected_spans) == (200, 1)
    assert "spans[0]" in response.partial_success.error_message
    bad = json.loads(json.dumps(good))
    bad["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] = "xyz"
    answer = client.post("/v1/traces", json=bad)
    assert (answer.status_code, answer.json()["partialSuccess"]["rejectedSpans"]) == (200, "1")
    assert len(slices(house, rollout_of(number))) == 1


def test_bodies_that_are_no_requests_are_refused_in_the_type_of_the_request(client: httpx.Client) -> None:
    many = ExportTraceServiceRequest()
    spans = many.resource_spans.add().scope_spans.add().spans
    for number in range(MAX_MEMBERS + 1):
        spans.add(trace_id=bytes(15) + b"x", span_id=number.to_bytes(8, "big"))
    bomb = gzip.compress(bytes(65 * 1024 * 1024))
    for status, content, headers in (
        (400, b"\x0a\xff\xff", PROTOBUF),
        (400, b"{", {"Content-Type": "application/json"}),
        (400, b'{"a": 1}', {"Content-Type": "application/json"}),
        (400, b"no gzip", PROTOBUF | {"Content-Encoding": "gzip"}),
        (413, many.SerializeToString(), PROTOBUF),
        (413, bomb, PROTOBUF | {"Content-Encoding": "gzip"}),
        (413, bytes(17 * 1024 * 1024), PROTOBUF),
        (415, b"x", {"Content-Type": "text/plain"}),
        (415, b"x", PROTOBUF | {"Content-Encoding": "zstd"}),
        (400, b"", PROTOBUF | {"X-Braid-Rollout": "r", "X-Braid-Branch": "-1"}),
        (401, b"", PROTOBUF | {"Authorization": "Bearer nobody"}),
        (403, b"", PROTOBUF | {"Authorization": "Bearer verifier-token"}),
        (403, b"", PROTOBUF | {"Authorization": "Bearer bound-token", "X-Braid-Rollout": "other"}),
    ):
        answer = client.post("/v1/traces", content=content, headers=headers)
        got = (answer.status_code, answer.headers["content-type"])
        protobuf = headers.get("Content-Type") == PROTOBUF["Content-Type"]
        assert got == (status, "application/x-protobuf" if protobuf else "application/json"), (status, answer.content)
        assert answer.content
    assert client.post("/v1/metrics", content=b"", headers=PROTOBUF).status_code == 404
    assert client.get("/v1/traces").status_code in (404, 405)


def test_a_bound_token_writes_to_its_branch_whatever_its_spans_name(client: httpx.Client, house: Settings) -> None:
    named = request(
        span(0, trace=trace(), attributes=chat(more={"braid.rollout_id": "victim", "braid.branch_index": 0}))
    )
    answer = client.post("/v1/traces", json=named, headers={"Authorization": "Bearer bound-token"})
    assert answer.status_code == 200
    assert list(slices(house, "mine", "victim")) == [("mine", 1, 0)]


def test_headers_name_a_branch(client: httpx.Client, house: Settings) -> None:
    headers = {"X-Braid-Rollout": "headed", "X-Braid-Branch": "2"}
    assert client.post(
        "/v1/traces", json=request(span(0, trace=trace(), attributes=chat())), headers=headers
    ).is_success
    assert list(slices(house, "headed")) == [("headed", 2, 0)]


def test_an_evaluation_is_a_check_only_with_a_verifiers_token(client: httpx.Client, house: Settings) -> None:
    told = {
        "gen_ai.evaluation.name": "exact", "gen_ai.evaluation.score.value": 1.0, "gen_ai.evaluation.score.label": "pass",
    }  # fmt: skip
    for rollout, token in (("judged", "both-token"), ("claimed", "agent-token"), ("judged-only", "verifier-token")):
        attributes = chat(more={"braid.rollout_id": rollout, "braid.branch_index": 1})
        body = request(
            span(0, trace=trace(), attributes=attributes, events=[event("gen_ai.evaluation.result", attributes=told)])
        )
        for _ in range(2):  # an exporter's retry
            answer = client.post("/v1/traces", json=body, headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200, answer.text
    checks = [each for each in asyncio.run(records_of(house, CHECK_VERDICTS)) if isinstance(each, CheckVerdict)]
    found = {(each.rollout_id, each.branch_index, each.name, each.status, each.verdict_id) for each in checks}
    assert sorted(each[:4] for each in found) == [
        ("judged", 1, "exact", "pass"),
        ("judged-only", 1, "exact", "pass"),
    ]
    captured = {each.identity for each in asyncio.run(records_of(house, CAPTURES))}  # type: ignore[attr-defined]
    assert None in captured


def test_log_records_that_carry_messages_are_captured_and_others_are_not(client: httpx.Client, house: Settings) -> None:
    number = trace()
    record = {"traceId": f"{number:032x}", "spanId": f"{1:016x}", "timeUnixNano": "5"}
    spoken = {**record, "eventName": "gen_ai.user.message", "body": {"kvlistValue": {"values": [
        {"key": "content", "value": {"stringValue": "told in a log"}}]}}}  # fmt: skip
    other = {**record, "traceId": f"{trace():032x}", "body": {"stringValue": "GET /health"}}
    for records in ([spoken, other], [other]):
        body = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
        assert client.post("/v1/logs", json=body).json() == {}
    bare = {name: value for name, value in chat().items() if name != "gen_ai.input.messages"}
    del bare["gen_ai.output.messages"]
    assert client.post("/v1/traces", json=request(span(0, trace=number, attributes=bare))).is_success
    (found,) = slices(house, rollout_of(number)).values()
    assert any("told in a log" in each.data for each in found[0].events)
    kept = {each.trace_id for each in asyncio.run(records_of(house, CAPTURES))}  # type: ignore[attr-defined]
    assert other["traceId"] not in kept


def test_without_a_broker_exporters_are_told_to_come_again(house: Settings) -> None:
    away = house.model_copy(update={"kafka": "127.0.0.1:1", "registry": ""})
    with gateway_of(away) as url:
        answer = httpx.post(f"{url}/v1/traces", content=bodies("gen_ai")[0], headers=PROTOBUF)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
