"""The refusals of the gateway: from whom, how much, and what kind. Nothing of it reaches the log."""

import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest

from streams.cluster.config import Settings
from streams.log.topics import BUILD_VERDICTS, CHECK_VERDICTS, VISUAL_VERDICTS, Topic
from tests.streams.services.gateway.serving import everything, seqs, written

pytestmark = pytest.mark.kafka

EVENT = {"seq": 0, "event": {"event": "step_start"}}
VERDICTS: dict[str, tuple[Topic, dict[str, Any]]] = {
    "build": (BUILD_VERDICTS, {"status": "success", "exit_code": 0}),
    "visual": (VISUAL_VERDICTS, {"verdict": "pass"}),
    "check": (CHECK_VERDICTS, {"name": "lint", "status": "pass"}),
}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def reasons(answer: httpx.Response) -> list[str]:
    return [error["reason"] for error in answer.json()["errors"]]


@pytest.mark.parametrize(
    "headers", [{}, bearer("wrong"), {"Authorization": "Basic agent-token"}, bearer("agent-token-")]
)
def test_without_a_known_token_there_is_no_way_in(guarded: httpx.Client, headers: dict[str, str]) -> None:
    """401, with what kind of token is needed; also before anything is said about the path."""
    for path in ("/v1/rollouts/r/branches/0/events", "/v1/rollouts/r/branches/x/events", "/v1/lines", "/v1/rollouts"):
        answer = guarded.post(path, json=EVENT, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("token", ["agent-token", "operator-token"])
@pytest.mark.parametrize("kind", VERDICTS)
def test_nobody_but_a_verifier_writes_verdicts(
    guarded: httpx.Client, house: Settings, rollout: str, token: str, kind: str
) -> None:
    """403, and nothing is in the topic: neither by its route nor among lines."""
    topic, verdict = VERDICTS[kind]
    answer = guarded.post(f"/v1/rollouts/{rollout}/branches/0/verdicts/{kind}", json=verdict, headers=bearer(token))
    assert answer.status_code == 403
    line = {"type": kind, "rollout_id": rollout, "branch_index": 0, **verdict}
    assert guarded.post("/v1/lines", json=line, headers=bearer(token)).status_code == 403
    assert written(house, rollout, topic) == []
    answer = guarded.post(
        f"/v1/rollouts/{rollout}/branches/0/verdicts/{kind}", json=verdict, headers=bearer("verifier-token")
    )
    assert answer.status_code == 202
    assert len(written(house, rollout, topic)) == 1


def test_an_agent_cannot_vote_or_open(guarded: httpx.Client, house: Settings, rollout: str) -> None:
    """Nor cancel, nor close."""
    opening = {"rollout_id": rollout, "task": "t", "required": []}
    answers = [
        guarded.post("/v1/rollouts", json=opening, headers=bearer("agent-token")),
        guarded.post(f"/v1/rollouts/{rollout}/cancel", headers=bearer("agent-token")),
        guarded.post(f"/v1/rollouts/{rollout}/close", headers=bearer("agent-token")),
        guarded.post(
            f"/v1/rollouts/{rollout}/votes", json={"a": 0, "b": 1, "preferred": "a"}, headers=bearer("agent-token")
        ),
    ]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert everything(house, rollout) == []


def test_each_line_needs_the_role_of_its_type(guarded: httpx.Client, house: Settings, rollout: str) -> None:
    """An agent's events among others' lines are taken, the others are not."""
    own = {"rollout_id": rollout, "branch_index": 0}
    lines = [
        {"type": "rollout", "rollout_id": rollout, "task": "t"},
        {"type": "event", **own, **EVENT},
        {"type": "build", **own, "status": "success", "exit_code": 0},
        {"type": "vote", "rollout_id": rollout, "a": 0, "b": 1, "preferred": "a"},
        {**own, "final_answer": "x", "objective_status": "pass"},
    ]
    content = b"\n".join(map(orjson.dumps, lines))
    answer = guarded.post(
        "/v1/lines", content=content, headers={"content-type": "application/x-ndjson"} | bearer("agent-token")
    )
    assert answer.status_code == 207
    assert [(error["index"], error["status"]) for error in answer.json()["errors"]] == [
        (0, 403),
        (2, 403),
        (3, 403),
        (4, 403),
    ]
    assert [type(record).__name__ for record in everything(house, rollout)] == ["AgentEvents"]


def test_a_bound_token_writes_to_its_branch_only(guarded: httpx.Client, house: Settings) -> None:
    """Not to another branch, not to another rollout, and not with a body that says something else than the path."""
    token = bearer("bound-token")
    answers = [
        guarded.post("/v1/rollouts/mine/branches/1/events", json=EVENT, headers=token),
        guarded.post("/v1/rollouts/mine/branches/2/events", json=EVENT, headers=token),
        guarded.post("/v1/rollouts/other/branches/1/events", json=EVENT, headers=token),
        guarded.post("/v1/rollouts/mine/branches/1/events", json=EVENT | {"branch_index": 2}, headers=token),
        guarded.post(
            "/v1/lines", json={"type": "event", "rollout_id": "other", "branch_index": 1, **EVENT}, headers=token
        ),
    ]
    assert [answer.status_code for answer in answers] == [202, 403, 403, 422, 403]
    assert [record.branch_index for record in everything(house, "mine") if hasattr(record, "branch_index")] == [1]
    assert everything(house, "other") == []


def test_a_body_over_the_limit_is_not_read(guarded_url: str) -> None:
    """The answer comes while most of the body has not even been sent."""
    parts = urlsplit(guarded_url)
    head = (
        "POST /v1/lines HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer agent-token\r\n"
        "Content-Type: application/x-ndjson\r\nContent-Length: 99999999999\r\n\r\n{}"
    )
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_say_its_length_is_cut_off(guarded: httpx.Client) -> None:
    """It is counted while it comes."""
    chunks = (b" " * 65536 for _ in range(100))
    answer = guarded.post(
        "/v1/lines", content=chunks, headers={"content-type": "application/x-ndjson"} | bearer("agent-token")
    )
    assert answer.status_code == 413


def test_an_event_over_a_mebibyte_is_refused_and_its_neighbours_are_not(
    guarded: httpx.Client, house: Settings, rollout: str
) -> None:
    """413 at its own position; alone, 413 for the request."""
    path = f"/v1/rollouts/{rollout}/branches/0/events?first_seq=0"
    large = {"event": "tool_result", "data": {"output": "x" * 1024 * 1024}}
    answer = guarded.post(path, json=[EVENT["event"], large, EVENT["event"]], headers=bearer("agent-token"))
    assert answer.status_code == 207
    assert [(error["index"], error["status"]) for error in answer.json()["errors"]] == [(1, 413)]
    assert seqs(house, rollout) == [0, 2]
    assert guarded.post(path, json=large, headers=bearer("agent-token")).status_code == 413


def test_a_bad_conversation_event_is_refused_at_its_own_position(
    guarded: httpx.Client, house: Settings, rollout: str
) -> None:
    """422 with the field for bad data, 413 for a message over a mebibyte; the events around them are written."""
    events = [
        {"event": "message", "data": {"role": "user", "content": "hi"}},
        {"event": "model_call", "data": {"call_id": "c1", "context": {"keep": -1}}},
        {"event": "message", "data": {"role": "user", "content": "x" * 1024 * 1024}},
        {"event": "model_call", "data": {"call_id": "c1", "context": {"add": ["m0"]}, "error": {"kind": "timeout"}}},
    ]
    path = f"/v1/rollouts/{rollout}/branches/0/events?first_seq=0"
    answer = guarded.post(path, json=events, headers=bearer("agent-token"))
    assert answer.status_code == 207
    assert [(error["index"], error["field"], error["status"]) for error in answer.json()["errors"]] == [
        (1, "event.data.context.keep", 422),
        (2, "event.data", 413),
    ]
    assert seqs(house, rollout) == [0, 3]
    assert guarded.post(path, json=events[1], headers=bearer("agent-token")).status_code == 422
    assert guarded.post(path, json=events[2], headers=bearer("agent-token")).status_code == 413


def test_secrets_do_not_reach_the_log_when_so_configured(guarded: httpx.Client, house: Settings, rollout: str) -> None:
    """A secret that an agent printed by mistake is gone before it is kept for ever."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    event = {"event": "tool_result", "data": {"output": f"TOKEN={secret}", "callId": "c1"}}
    answer = guarded.post(
        f"/v1/rollouts/{rollout}/branches/0/events?first_seq=0", json=event, headers=bearer("agent-token")
    )
    assert answer.status_code == 202
    (found,) = written(house, rollout)
    assert secret not in found.record.events[0].data
    assert "c1" in found.record.events[0].data


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"/v1/rollouts/{'x' * 257}/branches/0/events", "rollout_id"),
        ("/v1/rollouts//branches/0/events", "rollout_id"),
        ("/v1/rollouts/r/branches/-1/events", "branch_index"),
        ("/v1/rollouts/r/branches/100000/events", "branch_index"),
        ("/v1/rollouts/r/branches/one/events", "branch_index"),
        ("/v1/rollouts/r/branches/0/verdicts/taste", "kind"),
        ("/v1/rollouts/r/branches/0/events?first_seq=-1", "first_seq"),
        ("/v1/rollouts/r/branches/0/events?ended=true&status=happy", "status"),
        ("/v1/rollouts/r/branches/0/events?status=failed", "status"),
    ],
)
def test_what_is_wrong_with_the_address_is_named(client: httpx.Client, path: str, field: str) -> None:
    """422 with the field, in the same shape as everything else."""
    answer = client.post(path, json=EVENT)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_path_that_is_no_utf8_is_refused(client: httpx.Client) -> None:
    """Two ids must not become one by being repaired."""
    assert client.post("/v1/rollouts/%ff/branches/0/events", json=EVENT).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-encoding": "gzip"}, 415),
    ],
)
def test_an_open_gateway_takes_nothing_from_pages_of_others(
    client: httpx.Client, headers: dict[str, str], status: int
) -> None:
    """A page in a browser does not write events."""
    content = orjson.dumps(EVENT)
    answer = client.post(
        "/v1/rollouts/r/branches/0/events", content=content, headers={"content-type": "application/json"} | headers
    )
    assert answer.status_code == status


@pytest.mark.parametrize("body", [b"", b"  \n ", b"[]"])
def test_an_empty_body_is_an_error(client: httpx.Client, body: bytes) -> None:
    """Its sender meant to say something."""
    answer = client.post("/v1/rollouts/r/branches/0/events", content=body)
    assert (answer.status_code, reasons(answer)) == (400, ["there is nothing in the body"])


def test_unknown_places_have_the_same_shape(client: httpx.Client) -> None:
    """404 and 405 are answers like the others."""
    assert [client.post("/v2/lines").status_code, client.put("/v1/lines").status_code] == [404, 405]
    assert reasons(client.post("/v2/lines")) == ["Not Found"]
