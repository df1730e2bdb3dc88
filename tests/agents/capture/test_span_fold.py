"""Spans as captures: the fold gives the branches of an import of the same spans, in whatever order, batches and repetitions they come."""

import json
import random
from typing import Any

import pytest

from agents.capture.capture_fold import CaptureFold, RefusedCaptureError
from agents.capture.span_fold import SpanFold
from agents.importers.otlp.request_split import LOGS
from tests.agents.capture.span_captures import captures_of, events_in, folded
from tests.conformance import conformance
from tests.imports.importing import read_traces
from tests.imports.otlp import attributes, request, span

DIALECTS = ("gen_ai", "openinference")


def bodies(dialect: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted(conformance("imports", "otel", dialect).glob("body-*.pb"))]


def in_json(dialect: str) -> list[dict[str, Any]]:
    text = conformance("imports", "otel", dialect, "spans.otlp.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def plain(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the file that it was imported from."""
    left = {name: value for name, value in event["data"].items() if name not in ("file", "position")}
    return {**event, "data": left}


def spoken(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def chat(sent: str = "hi", said: str = "hello", more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Attributes of a model call."""
    return {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": spoken("user", sent),
        "gen_ai.output.messages": spoken("assistant", said), **(more or {}),
    }  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_fold_gives_the_events_of_an_import(dialect: str) -> None:
    lines = read_traces("otel", conformance("imports", "otel", dialect, "spans.otlp.jsonl"))
    slices, refused = folded(captures_of(bodies(dialect)))
    assert not refused
    imported: dict[Any, list[Any]] = {}
    for line in lines.of("event"):
        place = (line["rollout_id"], line["branch_index"], line["attempt"])
        imported.setdefault(place, []).append(plain(line["event"]))
    assert {place: [plain(each) for each in events_in(found)] for place, found in slices.items()} == imported
    ends = {line["branch_index"]: (line["status"], line.get("error")) for line in lines.of("end")}
    assert {place[1]: (found[-1].status, found[-1].error) for place, found in slices.items()} == ends
    sessions = {line["branch_index"]: line.get("session_id") for line in lines.of("event") if line["seq"] == 0}
    assert {place[1]: found[0].branch.session_id for place, found in slices.items() if found[0].branch} == sessions


@pytest.mark.parametrize("dialect", DIALECTS)
def test_shuffled_repeated_and_rebatched_bodies_give_the_same_slices(dialect: str) -> None:
    first = folded(captures_of(bodies(dialect)))[0]
    flat = [
        {"resourceSpans": [{**outer, "scopeSpans": [{**inner, "spans": [one]}]}]}
        for body in in_json(dialect)
        for outer in body["resourceSpans"]
        for inner in outer["scopeSpans"]
        for one in inner["spans"]
    ]
    for seed in range(4):
        order = random.Random(seed)
        told = [*bodies(dialect), *order.sample(bodies(dialect), 5)] if seed % 2 else [*flat, *order.sample(flat, 9)]
        order.shuffle(told)
        assert folded(captures_of(told))[0] == first


def test_a_trace_that_names_no_branch_is_a_rollout_of_its_own() -> None:
    slices, _ = folded(captures_of([request(span(0, attributes=chat()))]))
    assert list(slices) == [(f"otel-{1:032x}", 0, 0)]
    assert slices[f"otel-{1:032x}", 0, 0][-1].status == "answered"


def test_a_trace_of_something_else_leaves_nothing() -> None:
    assert folded(captures_of([request(span(0, name="GET /", attributes={"http.method": "GET"}))])) == ({}, [])


def test_traces_that_name_one_branch_become_one_branch() -> None:
    named = {"braid.rollout_id": "r", "braid.branch_index": "2"}
    told = [
        request(span(number, trace=number + 1, attributes=chat(f"q{number}")), resource=named) for number in range(3)
    ]
    slices, _ = folded(captures_of(told))
    assert list(slices) == [("r", 2, 0)]
    asked = [each["data"]["content"] for each in events_in(slices["r", 2, 0]) if each["data"].get("role") == "user"]
    assert asked == ["q0", "q1", "q2"]
    assert folded(captures_of(told[::-1]))[0] == slices


def test_a_header_names_the_branch_where_spans_and_resources_do_not() -> None:
    identity = json.dumps({"rollout_id": "h", "branch_index": 3})
    own = request(span(1, trace=2, attributes=chat(more={"braid.rollout_id": "own"})))
    slices, _ = folded(captures_of([request(span(0, attributes=chat())), own], identity=identity))
    assert sorted(slices) == [("h", 3, 0), ("own", 3, 0)]


def test_a_token_of_one_branch_writes_to_no_other() -> None:
    identity = json.dumps({"rollout_id": "mine", "branch_index": 1, "bound": True})
    named = request(span(0, attributes=chat(more={"braid.rollout_id": "other", "braid.branch_index": 7})))
    assert list(folded(captures_of([named], identity=identity))[0]) == [("mine", 1, 0)]


def test_a_span_after_the_end_of_its_trace_is_late() -> None:
    first, second = captures_of([request(span(0, attributes=chat())), request(span(1, attributes=chat()))])
    fold = CaptureFold(first.rollout_id, 0)
    fold.take(first, 0)
    fold.take(first.model_copy(update={"kind": "end", "capture_id": "e", "body": b"{}"}), 1)
    with pytest.raises(RefusedCaptureError) as refused:
        fold.take(second, 2)
    assert refused.value.reason == "late"


def test_a_trace_is_whole_when_parents_are_there_and_all_spans_have_ended() -> None:
    fold = SpanFold({"rollout_id": "r", "branch_index": 0, "attempt": 0})
    child, root = captures_of([request(span(1, parent=0)), request(span(0))])
    fold.add(child, child.body)
    assert not fold.is_whole
    fold.add(root, root.body)
    assert fold.is_whole
    (opened,) = captures_of([request({**span(2, parent=0), "endTimeUnixNano": "0"})])
    fold.add(opened, opened.body)
    assert not fold.is_whole


def test_log_records_tell_the_messages_of_their_span() -> None:
    bare = {name: value for name, value in chat().items() if not name.endswith("messages")}
    record = {
        "traceId": f"{1:032x}", "spanId": f"{1:016x}", "eventName": "gen_ai.user.message", "timeUnixNano": "5",
        "body": {"kvlistValue": {"values": attributes({"content": "from a log"})}},
    }  # fmt: skip
    choice = {**record, "eventName": "gen_ai.choice", "timeUnixNano": "6"} | {
        "body": {"kvlistValue": {"values": attributes({"message": {"role": "assistant", "content": "said"}})}}
    }
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, choice]}]}]}
    slices, _ = folded([*captures_of([logs], LOGS), *captures_of([request(span(0, attributes=bare))])])
    (found,) = slices.values()
    assert [each["data"]["content"] for each in events_in(found) if each["event"] == "message"] == [
        "from a log",
        "said",
    ]
