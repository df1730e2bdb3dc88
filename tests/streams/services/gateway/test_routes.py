"""The records that every route writes, read back from the log."""

import shutil
import subprocess
from collections import Counter

import httpx
import orjson
import pytest

from streams.cluster.config import Settings
from streams.cluster.connections import partition_of
from streams.log.topics import SLICE_LIMIT
from tests.streams.services.gateway.serving import everything, seqs, written

pytestmark = pytest.mark.kafka

EVENT = {
    "channel": "tool",
    "event": "tool_call",
    "data": {"toolName": "bash", "args": {}, "callId": "c"},
    "timestamp_ms": 1767225600000,
}
CLOUD = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def post_lines(
    client: httpx.Client, path: str, lines: list[object], kind: str = "application/x-ndjson"
) -> httpx.Response:
    return client.post(path, content=b"\n".join(orjson.dumps(line) for line in lines), headers={"content-type": kind})


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_gets_the_offset_of_its_event(open_url: str, house: Settings, rollout: str) -> None:
    """The first thing that a newcomer tries."""
    url = f"{open_url}/v1/rollouts/{rollout}/branches/0/events"
    body = orjson.dumps({"seq": 0, "event": EVENT}).decode()
    command = ["curl", "-sS", "-w", "\n%{http_code}", "-H", "Content-Type: application/json", "-d", body, url]
    answer, _, status = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=30
    ).stdout.rpartition("\n")
    assert status == "202"
    (record,) = orjson.loads(answer)["records"]
    (found,) = written(house, rollout)
    assert (record["partition"], record["offset"]) == (found.partition, found.offset)


def test_a_record_has_its_key_partition_and_headers(client: httpx.Client, house: Settings, rollout: str) -> None:
    """Everything about a rollout meets in one partition, and the trace goes on."""
    client.post(
        f"/v1/rollouts/{rollout}/branches/0/events", json={"seq": 3, "event": EVENT}, headers={"traceparent": TRACE}
    )
    (found,) = written(house, rollout)
    assert found.partition == partition_of(rollout, house.partitions)
    assert found.headers == {
        "ce_specversion": "1.0",
        "ce_id": f"{rollout}/b0/a0/s3",
        "ce_type": "braidstream.AgentEvents.v1",
        "ce_source": "/braidstream/gateway",
        "ce_time": "2026-01-01T00:00:00.000Z",
        "content-type": "application/avro",
        "traceparent": TRACE,
    }


def test_a_traceparent_that_is_none_is_left_out(client: httpx.Client, house: Settings, rollout: str) -> None:
    """It comes from outside and would travel on."""
    client.post(
        f"/v1/rollouts/{rollout}/branches/0/events",
        json={"seq": 0, "event": EVENT},
        headers={"traceparent": "00-0-0-00"},
    )
    assert "traceparent" not in written(house, rollout)[0].headers


def test_events_of_all_forms_arrive(client: httpx.Client, house: Settings, rollout: str) -> None:
    """One, an array, lines, and CloudEvents in structured, batched and binary mode."""
    path = f"/v1/rollouts/{rollout}/branches/0/events"
    cloud = [CLOUD | {"sequence": str(seq), "data": EVENT} for seq in (5, 6, 7)]
    answers = [
        client.post(path, json={"seq": 0, "event": EVENT}),
        client.post(f"{path}?first_seq=1", json=[EVENT, EVENT]),
        post_lines(client, path, [{"seq": 3, "event": EVENT}, EVENT | {"seq": 4}]),
        client.post(path, content=orjson.dumps(cloud[0]), headers={"content-type": "application/cloudevents+json"}),
        client.post(
            path, content=orjson.dumps(cloud[1:]), headers={"content-type": "application/cloudevents-batch+json"}
        ),
        client.post(
            path, json=EVENT, headers={f"ce-{name}": value for name, value in (CLOUD | {"sequence": "8"}).items()}
        ),
    ]
    assert [answer.status_code for answer in answers] == [202] * 6
    assert [answer.json()["accepted"] for answer in answers] == [1, 2, 2, 1, 2, 1]
    assert seqs(house, rollout) == list(range(9))


def test_an_end_travels_with_the_last_slice(client: httpx.Client, house: Settings, rollout: str) -> None:
    """With its status, its error and the last seq."""
    path = f"/v1/rollouts/{rollout}/branches/3/events"
    answer = client.post(path, params={"first_seq": 0, "attempt": 2, "ended": True, "error": "no"}, json=[EVENT, EVENT])
    assert answer.status_code == 202
    (found,) = written(house, rollout)
    end = found.record
    assert (end.branch_index, end.attempt, end.ended, end.status, end.error, end.last_seq) == (
        3,
        2,
        True,
        "failed",
        "no",
        1,
    )


def test_an_end_needs_no_events(client: httpx.Client, house: Settings, rollout: str) -> None:
    """Then the body is empty."""
    answer = client.post(f"/v1/rollouts/{rollout}/branches/0/events?ended=true&status=aborted")
    assert answer.status_code == 202
    assert [(found.record.ended, found.record.status) for found in written(house, rollout)] == [(True, "aborted")]


def test_an_end_waits_for_events_that_were_refused(client: httpx.Client, house: Settings, rollout: str) -> None:
    """Else the branch could settle before they are sent again."""
    answer = client.post(
        f"/v1/rollouts/{rollout}/branches/0/events?first_seq=0&ended=true", json=[EVENT, {"event": 1}, EVENT]
    )
    assert answer.status_code == 207
    assert [(error["index"], error["field"]) for error in answer.json()["errors"]] == [(1, "event"), (None, "ended")]
    assert seqs(house, rollout) == [0, 2]
    assert not any(found.record.ended for found in written(house, rollout))


def test_the_life_of_a_rollout_over_http(client: httpx.Client, house: Settings, rollout: str) -> None:
    """Opened, judged, voted on, closed, cancelled: each in its own topic."""
    base = f"/v1/rollouts/{rollout}"
    answers = [
        client.post(
            "/v1/rollouts", json={"rollout_id": rollout, "task": "t", "branches": 2, "tools": [{"name": "bash"}]}
        ),
        client.post(f"{base}/branches/0/verdicts/build", json={"status": "success", "exit_code": 0}),
        client.post(f"{base}/branches/0/verdicts/visual", json={"verdict": "pass"}),
        client.post(f"{base}/branches/1/verdicts/check", json={"name": "lint", "status": "fail"}),
        client.post(
            f"{base}/votes",
            json=[{"a": 0, "b": 1, "order": order, "preferred": "a", "judge": "m"} for order in ("ab", "ba")],
        ),
        client.post(f"{base}/close"),
        client.post(f"{base}/cancel", json={"reason": "enough"}),
    ]
    assert [answer.status_code for answer in answers] == [202] * 7
    opened, close, cancelled, build, visual, check, *votes = everything(house, rollout)
    assert (opened.opened.branches, opened.opened.tools) == (2, '[{"name":"bash"}]')
    assert close.close_requested.end_of_input is False
    assert cancelled.cancelled.reason == "enough"
    assert (build.exit_code, visual.verdict, check.branch_index) == (0, "pass", 1)
    assert [vote.order for vote in votes] == ["ab", "ba"]


def test_lines_of_all_types_go_to_their_topics(client: httpx.Client, house: Settings, rollout: str) -> None:
    """A bad line is named, with its line, and the others are written."""
    own = {"rollout_id": rollout, "branch_index": 0}
    lines: list[object] = [
        {"type": "rollout", "rollout_id": rollout, "task": "t"},
        {"type": "event", **own, "event": EVENT},
        {"type": "nonsense"},
        {"type": "event", **own, "event": EVENT},
        {"type": "build", **own, "status": "perhaps"},
        {"type": "end", **own},
        {"type": "build", **own, "status": "success", "exit_code": 0},
        {"type": "vote", "rollout_id": rollout, "a": 0, "b": 1, "preferred": "a"},
        {"rollout_id": rollout, "branch_index": 1, "final_answer": "42", "objective_status": "pass"},
    ]
    answer = post_lines(client, "/v1/lines", lines)
    assert answer.status_code == 207
    assert answer.json()["accepted"] == 7
    assert [(error["index"], error["line"], error["field"], error["status"]) for error in answer.json()["errors"]] == [
        (2, 3, "type", 422),
        (4, 5, "status", 422),
    ]
    counts = Counter(type(record).__name__ for record in everything(house, rollout))
    assert counts == {"Lifecycle": 1, "AgentEvents": 2, "BuildVerdict": 2, "JudgeVote": 1}
    assert seqs(house, rollout) == [0, 1, 0]


def test_a_long_body_becomes_slices_of_at_most_a_mebibyte(client: httpx.Client, house: Settings, rollout: str) -> None:
    """In order, none missing."""
    big = EVENT | {"data": {"output": "x" * 100_000}}
    answer = post_lines(
        client,
        f"/v1/rollouts/{rollout}/branches/0/events?first_seq=0",
        [big if seq % 3 else EVENT for seq in range(60)],
    )
    assert answer.status_code == 202
    assert seqs(house, rollout) == list(range(60))
    records = answer.json()["records"]
    assert 4 <= len(records) <= 8
    assert all(len(orjson.dumps(found.record.model_dump())) < SLICE_LIMIT * 1.1 for found in written(house, rollout))


def test_sending_twice_is_the_same_as_sending_once(client: httpx.Client, house: Settings, rollout: str) -> None:
    """Both are accepted, with the same ids, for the fold to ignore one."""
    body = [{"seq": seq, "event": EVENT} for seq in range(3)]
    first, second = (client.post(f"/v1/rollouts/{rollout}/branches/0/events", json=body) for _ in range(2))
    assert first.json()["records"][0]["id"] == second.json()["records"][0]["id"]
    one, two = written(house, rollout)
    assert one.record == two.record


def test_an_id_with_a_slash_has_its_routes(client: httpx.Client, house: Settings, rollout: str) -> None:
    """Ids are kept as they are."""
    name = f"{rollout}/ä b"
    assert (
        client.post(
            f"/v1/rollouts/{rollout}%2F%C3%A4%20b/branches/0/events", json={"seq": 0, "event": EVENT}
        ).status_code
        == 202
    )
    assert seqs(house, name) == [0]


def test_a_verdict_that_will_mean_nothing_is_taken_with_a_warning(client: httpx.Client, rollout: str) -> None:
    """The answer says what it will mean and what to send; one that was refused has an error instead."""
    verdicts = [
        {"type": "build", "rollout_id": rollout, "branch_index": 0, "status": "success", "exit_code": 0},
        {"type": "build", "rollout_id": rollout, "branch_index": 0, "status": "ok"},
        {"type": "check", "rollout_id": rollout, "branch_index": 0, "name": "lint", "status": "ok"},
    ]
    answer = post_lines(client, "/v1/lines", list(verdicts))
    assert answer.status_code == 207
    assert answer.json()["warnings"] == [
        {"index": 1, "line": 2, "field": "exit_code", "reason": "unknown: a success without exit_code; send exit_code"}
    ]
    assert [(error["index"], error["field"]) for error in answer.json()["errors"]] == [(2, "status")]
