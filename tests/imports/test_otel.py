"""OpenTelemetry traces in files: both dialects, both encodings, any order."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from agents.importers.traces.format import Options
from agents.importers.traces.rollout_book import Grouping
from tests.conformance import conformance
from tests.conftest import Braid
from tests.imports.exact_rows import rows_of
from tests.imports.importing import Read, read_traces
from tests.imports.otlp import FAILED, START, attributes, event, request, span
from tests.imports.told import heard

DIALECTS = ("gen_ai", "openinference")


def sample(dialect: str) -> Path:
    return conformance("imports", "otel", dialect, "spans.otlp.jsonl")


def requests(dialect: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sample(dialect).read_text().splitlines()]


def read_spans(folder: Path, *values: Any, **more: Any) -> Read:
    """Import requests, each a line."""
    folder.mkdir(exist_ok=True)
    file = folder / "traces.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return read_traces("otel", file, **more)


def asked(*messages: tuple[str, str]) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in messages])


def chat(sent: str = "hi", said: str = "hello", **more: Any) -> dict[str, Any]:
    """Attributes of a model call."""
    return {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": asked(("user", sent)),
        "gen_ai.output.messages": asked(("assistant", said)), "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2, **more,
    }  # fmt: skip


def told(read: Read) -> dict[int, list[Any]]:
    """By branch, what was said, called and returned."""
    found: dict[int, list[Any]] = {}
    for line in read.of("event"):
        data = line["event"]["data"]
        if line["event"]["event"] == "message":
            calls = [(each["id"], each["name"], json.loads(each["arguments"])) for each in data.get("tool_calls", ())]
            fields = [data.get(name) for name in ("role", "content", "tool_call_id", "name", "is_error")]
            found.setdefault(line["branch_index"], []).append([*fields, calls])
    return found


def test_both_dialects_tell_the_same_runs() -> None:
    one, other = (read_traces("otel", sample(dialect)) for dialect in DIALECTS)
    assert told(one) == told(other)
    usage = [[each.get("usage") for each in read.events("model_call")] for read in (one, other)]
    assert usage[0] == usage[1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_protobuf_bodies_give_the_lines_of_json(dialect: str, tmp_path: Path) -> None:
    bodies = sorted(conformance("imports", "otel", dialect).glob("body-*.pb"))
    random.Random(1).shuffle(bodies)
    text = read_traces("otel", *bodies).text.replace(b"body-00.pb and 11 more", b"spans.otlp.jsonl")
    assert text == read_traces("otel", sample(dialect)).text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_order_of_spans_and_files_changes_nothing(dialect: str, tmp_path: Path) -> None:
    flat = [
        (each["resource"], scoped["scope"], one)
        for body in requests(dialect)
        for each in body["resourceSpans"]
        for scoped in each["scopeSpans"]
        for one in scoped["spans"]
    ]
    found = set()
    for seed in range(6):
        order = random.Random(seed)
        order.shuffle(flat)
        folder = tmp_path / str(seed)
        folder.mkdir()
        for number in range(3):  # some spans are there twice
            spans = [*flat[number::3], *order.sample(flat, 4)]
            bodies = [
                {"resourceSpans": [{"resource": r, "scopeSpans": [{"scope": s, "spans": [one]}]}]}
                for r, s, one in spans
            ]
            (folder / f"{number}.jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies))
        found.add(read_traces("otel", folder).text)
    assert len(found) == 1


def test_rows_of_both_dialects_are_exact(tmp_path: Path, braid: Braid) -> None:
    for dialect in DIALECTS:
        folder = tmp_path / dialect
        folder.mkdir()
        rows = rows_of(read_traces("otel", sample(dialect)), folder, braid)
        kept = [row for row in [*rows.sft, *rows.ppo] if row["fidelity"] != "exact"]
        assert not kept
        assert {tuple(row["reasons"][:1]) for row in rows.rejected if row["kind"] == "sft"} <= {
            ("not_passing",),
            ("duplicate_of",),
        }
        assert [message["role"] for message in rows.sft[0]["messages"]] == [
            "system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
        ]  # fmt: skip
        assert [message["trained"] for message in rows.sft[0]["messages"] if message["role"] == "assistant"] == [
            True
        ] * 3


def test_a_trace_that_names_no_rollout_is_one_of_its_own(tmp_path: Path) -> None:
    read = read_spans(tmp_path, request(span(0, attributes=chat())))
    assert read.of("rollout")[0]["rollout_id"] == f"otel-{1:032x}"
    assert read.of("end")[0]["status"] == "answered"


def test_the_branch_is_named_by_a_span_around_or_by_the_resource(tmp_path: Path) -> None:
    spans = [
        span(0, trace=5, name="all"),
        span(1, 0, trace=5, name="run", attributes={"braid.branch_index": 1, "braid.attempt": "2"}),
        span(2, 1, trace=5, attributes=chat("a")),
        span(3, 0, trace=5, name="run", attributes={"braid.branch_index": 0}),
        span(4, 3, trace=5, attributes=chat("b")),
    ]
    read = read_spans(tmp_path, request(*spans, resource={"braid.rollout_id": "mine"}))
    assert [(line["rollout_id"], line["branch_index"], line["attempt"]) for line in read.of("end")] == [
        ("mine", 0, 0),
        ("mine", 1, 2),
    ]


def test_traces_that_name_one_branch_are_one_conversation(tmp_path: Path) -> None:
    first = chat("hi", "hello")
    sent = asked(("user", "hi"), ("assistant", "hello"), ("user", "more"))
    second = chat(said="yes") | {"gen_ai.input.messages": sent}
    named = {"braid.rollout_id": "r", "braid.branch_index": 0}
    read = read_spans(
        tmp_path, request(span(9, trace=2, attributes=second | named), span(0, trace=1, attributes=first | named))
    )
    calls = heard(line["event"] for line in read.of("event"))
    assert [len(call.sent) for call in calls] == [1, 3]
    assert len(read.events("message")) == 4


def test_a_call_that_two_instrumentations_tell_is_one(tmp_path: Path) -> None:
    sdk = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.response.id": "r1",
    }
    nested = request(span(0, attributes=chat()), span(1, 0, lasts=2, attributes=sdk))
    beside = request(
        span(2, 9, trace=2, attributes=chat(**{"gen_ai.response.id": "r1"})),
        span(3, 9, trace=2, lasts=1, attributes=sdk),
        span(9, trace=2),
    )
    for number, body in enumerate((nested, beside)):
        read = read_spans(tmp_path / str(number), body)
        assert [call["usage"] for call in read.events("model_call")] == [{"input": 10, "output": 2}]


def test_calls_one_after_the_other_are_two_also_where_parents_lead_in_a_circle(tmp_path: Path) -> None:
    again = json.dumps([
        {"role": role, "parts": [{"type": "text", "content": text}]}
        for role, text in (("user", "hi"), ("assistant", "hello"), ("user", "more"))
    ])  # fmt: skip
    first = span(0, 6, attributes=chat())
    second = span(6, 0, attributes=chat(said="bye", **{"gen_ai.input.messages": again}))
    read = read_spans(tmp_path, request(second, first))
    calls = read.events("model_call")
    assert [call["usage"]["input"] for call in calls] == [10, 10]
    assert len({call["response"] for call in calls}) == 2


def test_attempts_inside_of_a_call_are_failed_calls_with_its_messages(tmp_path: Path) -> None:
    sdk = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    read = read_spans(
        tmp_path,
        request(
            span(0, attributes=chat()),
            span(1, 0, lasts=1, attributes=sdk, status=FAILED),
            span(2, 0, lasts=1, attributes=sdk),
        ),
    )
    failed, answered = heard(line["event"] for line in read.of("event"))
    assert failed.data["error"]["kind"] == "rate_limited"
    assert failed.sent == answered.sent
    assert read.of("end")[0]["status"] == "answered"


def test_a_branch_whose_last_call_failed_ends_without_a_verdict(tmp_path: Path) -> None:
    judged = event(
        "gen_ai.evaluation.result", attributes={"gen_ai.evaluation.name": "ok", "gen_ai.evaluation.score.label": "fail"}
    )
    failing = chat() | {"error.type": "RateLimitError"}
    read = read_spans(tmp_path, request(span(0, attributes=failing, status=FAILED, events=[judged])))
    assert read.of("end")[0]["status"] == "infra_error"
    assert not read.of("check")


def test_a_context_that_is_too_long_is_the_agents_own_failure(tmp_path: Path) -> None:
    status = {"code": "STATUS_CODE_ERROR", "message": "Error code: 400 - context_length_exceeded"}
    read = read_spans(tmp_path, request(span(0, attributes=chat(), status=status)))
    assert read.of("end")[0]["status"] == "failed"


def test_a_trace_whose_root_is_missing_has_not_ended(tmp_path: Path) -> None:
    read = read_spans(tmp_path, request(span(1, 0, attributes=chat())))
    assert not read.of("end")


def test_a_parent_in_another_process_is_no_missing_root(tmp_path: Path) -> None:
    read = read_spans(tmp_path, request(span(1, 0, attributes=chat(), flags=0x301)))
    assert read.of("end")[0]["status"] == "answered"


def test_evaluations_become_checks(tmp_path: Path) -> None:
    said = [
        event(
            "gen_ai.evaluation.result",
            attributes={
                f"gen_ai.evaluation.{field}": value
                for field, value in zip(("name", "score.value", "score.label"), each, strict=True)
            },
        )
        for each in (("tone", 0.5, "fine"), ("right", 1.0, "pass"), ("build", 7.0, "incorrect"))
    ]
    noted = {"annotations.0.annotation.name": "human", "annotations.0.annotation.score": 0.9}
    body = request(span(0, attributes=chat() | noted, events=said))
    checks = read_spans(tmp_path, body).of("check")
    found = [(each["name"], each["status"], each.get("score")) for each in checks]
    assert found == [
        ("tone", "unknown", 0.5),
        ("right", "pass", 1.0),
        ("build check", "fail", None),
        ("human", "unknown", 0.9),
    ]
    decided = read_spans(tmp_path, body, options=Options(pass_at=0.8)).of("check")
    assert [each["status"] for each in decided] == ["fail", "pass", "pass", "pass"]


def test_the_older_attributes_are_read(tmp_path: Path) -> None:
    older = {
        "llm.request.type": "chat", "gen_ai.request.model": "m", "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": '[{"type": "text", "text": "look"}]',
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.id": "a", "gen_ai.completion.0.tool_calls.0.name": "look",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}", "llm.request.functions.0.name": "look",
        "llm.request.functions.0.parameters": "{}", "gen_ai.usage.prompt_tokens": 5, "gen_ai.usage.completion_tokens": 1,
    }  # fmt: skip
    (call,) = heard(line["event"] for line in read_spans(tmp_path, request(span(0, attributes=older))).of("event"))
    assert [each["content"] for each in call.sent] == ["Be brief.", "look"]
    assert call.response is not None
    assert call.response["tool_calls"] == [{"id": "a", "name": "look", "arguments": "{}"}]
    assert call.data["usage"] == {"input": 5, "output": 1}
    assert call.data["tools"] == [{"name": "look", "parameters": {}}]


def test_messages_in_events_and_log_records_are_read(tmp_path: Path) -> None:
    plain = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    events = [
        event("gen_ai.user.message", content="look"),
        event("gen_ai.choice", finish_reason="stop", message='{"content": "A door."}'),
    ]
    bodies = {
        "gen_ai.user.message": {"content": "look"},
        "gen_ai.choice": {"index": 0, "message": {"role": "assistant", "content": "A door."}},
    }
    where = {"traceId": f"{1:032x}", "spanId": f"{1:016x}", "timeUnixNano": str(START)}
    records = [
        {**where, "eventName": name, "body": {"kvlistValue": {"values": attributes(body)}}}
        for name, body in bodies.items()
    ]
    logs = {"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {}, "logRecords": records}]}]}
    for number, given in enumerate(
        ([request(span(0, attributes=plain, events=events))], [logs, request(span(0, attributes=plain))])
    ):
        (call,) = heard(line["event"] for line in read_spans(tmp_path / str(number), *given).of("event"))
        assert [each["content"] for each in call.sent] == ["look"]
        assert call.response is not None
        assert call.response["content"] == "A door."


def test_two_choices_of_one_request_are_two_responses_and_count_once(tmp_path: Path) -> None:
    two = chat() | {
        "gen_ai.output.messages": asked(("assistant", "a"), ("assistant", "b")),
        "gen_ai.response.finish_reasons": ["stop", "stop"],
    }
    read = read_spans(tmp_path, request(span(0, attributes=two)))
    calls = heard(line["event"] for line in read.of("event"))
    assert [call.response["content"] for call in calls if call.response] == ["a", "b"]
    assert [call.data.get("usage") for call in calls] == [{"input": 10, "output": 2}, None]


def test_an_agent_inside_of_a_tool_is_named(tmp_path: Path) -> None:
    asks = json.dumps(
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "ask", "arguments": {}}]}]
    )
    spans = [
        span(0, name="invoke_agent main", attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "main"}),
        span(1, 0, attributes=chat() | {"gen_ai.output.messages": asks}),
        span(10, 0, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask", "gen_ai.tool.call.id": "a"}),
        span(11, 10, name="invoke_agent helper", attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}),
        span(12, 11, attributes=chat("help")),
    ]  # fmt: skip
    calls = read_spans(tmp_path, request(*spans)).events("model_call")
    assert [call["agent"] for call in calls] == ["main", "helper"]


def test_calls_without_recorded_messages_become_no_row(tmp_path: Path, braid: Braid) -> None:
    plain = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "a",
        "gen_ai.tool.call.result": "x",
    }
    read = read_spans(
        tmp_path,
        request(
            span(9, name="app"), span(0, 9, attributes=plain), span(1, 9, attributes=tool), span(5, 9, attributes=plain)
        ),
    )
    assert read.events("tool_result") == [
        {"callId": "a", "output": "x", "toolName": "look", "source": read.events("tool_result")[0]["source"]}
    ]
    assert read.events("content_left_out") == [{"reason": "not_recorded", "count": 2}]
    rows = rows_of(read, tmp_path, braid)
    assert not rows.sft
    assert {row["reasons"][0] for row in rows.rejected if row["kind"] == "sft"} == {"not_representable"}


def test_a_bad_span_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    bad = [span(1) | {"traceId": "xyz"}, span(2) | {"attributes": [3]}, span(3) | {"startTimeUnixNano": "never"}, 7]
    read = read_spans(
        tmp_path,
        request(*bad, span(0, attributes=chat())),
        {"resourceSpans": 1},
        {"resourceSpans": [{"scopeSpans": {}}]},
    )
    assert read.found.branches == 1
    assert read.rejected.count == 6
    assert all("traces.jsonl: line" in text for text in read.rejected.first)


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    read = read_spans(tmp_path, request(span(0, 1, attributes=chat("a")), span(1, 0, attributes=chat("b")), span(2, 2)))
    assert read.found.branches == 1


def test_traces_of_something_else_are_one_rejection(tmp_path: Path) -> None:
    read = read_spans(
        tmp_path,
        request(span(0, trace=1, name="GET /"), span(0, trace=2, name="GET /"), span(0, trace=3, attributes=chat())),
    )
    assert read.found.branches == 1
    assert read.rejected.count == 1


def test_one_request_in_one_object_and_packed_files_are_read(tmp_path: Path) -> None:
    body = request(span(0, attributes=chat()), span(0, trace=2, attributes=chat("b")))
    (tmp_path / "pretty.json").write_text(json.dumps(body, indent=2))
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(json.dumps(body).encode()))
    (tmp_path / "list.json").write_text(json.dumps([body]))
    for name in ("pretty.json", "packed.json.gz", "list.json"):
        assert read_traces("auto", tmp_path / name).found.rollouts == 2


def test_bodies_with_their_lengths_before_them_are_read(tmp_path: Path) -> None:
    bodies = [path.read_bytes() for path in sorted(conformance("imports", "otel", "gen_ai").glob("body-*.pb"))]
    file = tmp_path / "traces.pb"
    file.write_bytes(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
    assert read_traces("auto", file).found.branches == 4
    file.write_bytes(file.read_bytes()[:-3])
    assert read_traces("otel", file).rejected.count == 1


def test_group_by_names_attributes_and_the_resource(tmp_path: Path) -> None:
    spans = [span(0, trace=number, attributes=chat(str(number)) | {"session.id": "s"}) for number in (1, 2)]
    for path in ("attributes.session.id", "resource.service.name", "session.id"):
        read = read_spans(tmp_path, request(*spans, resource={"service.name": "x"}), grouping=Grouping(group_by=path))
        assert (read.found.rollouts, read.found.branches) == (1, 2)
