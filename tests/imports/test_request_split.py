"""Requests split by trace and spans read: the file in C and opentelemetry-proto give the same, whatever the bytes."""

import random
from typing import Any

import pytest

from agents.importers.line_error import LineError, TooLargeError
from agents.importers.otlp import request_heads, request_proto, request_split
from agents.importers.otlp.request_json import Problem
from agents.importers.otlp.request_proto import by_library, read_body
from agents.importers.otlp.request_redaction import redacted
from agents.importers.otlp.request_split import LOGS, MAX_MEMBERS, TRACES, split_by_library, split_json, split_proto
from agents.importers.otlp.spans import Span
from tests.conformance import conformance
from tests.imports.otlp import request, span

DIALECTS = ("gen_ai", "openinference")

in_c = pytest.mark.skipif(not request_split.COMPILED, reason="not compiled")


def bodies() -> list[bytes]:
    found = [file for dialect in DIALECTS for file in conformance("imports", "otel", dialect).glob("body-*.pb")]
    return [file.read_bytes() for file in sorted(found)]


@in_c
def test_spans_are_read_alike() -> None:
    for body in [*bodies(), b"".join(bodies())]:
        assert list(read_body(body)) == list(by_library(body))


@in_c
def test_requests_are_split_alike() -> None:
    shuffled = bodies()
    random.Random(2).shuffle(shuffled)
    for body in [*bodies(), b"".join(shuffled)]:
        ours, theirs = split_proto(body, TRACES), split_by_library(body, TRACES)
        assert (ours.members, ours.bad, ours.bodies.keys()) == (theirs.members, theirs.bad, theirs.bodies.keys())
        for trace in ours.bodies:
            assert list(by_library(ours.bodies[trace])) == list(by_library(theirs.bodies[trace]))


@in_c
def test_values_of_every_kind_are_read_alike() -> None:
    made = TRACES.request()
    one = (
        made.resource_spans.add()
        .scope_spans.add()
        .spans.add(
            trace_id=b"t" * 16, span_id=b"s" * 8, name="naïve ✓", start_time_unix_nano=2**64 - 1, kind=5, flags=0x300
        )
    )
    one.status.code, one.status.message = 2, "no"
    one.links.add(trace_id=b"l" * 16, span_id=b"m" * 8).attributes.add(key="k").value.bool_value = True
    one.events.add(name="e", time_unix_nano=7).attributes.add(key="k").value.int_value = -(2**63)
    for number, value in enumerate((float("nan"), float("-inf"), 0.1)):
        one.attributes.add(key=f"real {number}").value.double_value = value
    one.attributes.add(key="bytes").value.bytes_value = b"\x00\xff"
    one.attributes.add(key="empty")
    one.attributes.add(key="real 2").value.string_value = "the last one counts"
    inner = one.attributes.add(key="nested").value.kvlist_value.values.add(key="deep").value
    for _ in range(20):
        inner = inner.array_value.values.add()
    inner.string_value = "bottom"
    body = made.SerializeToString()
    assert list(read_body(body)) == list(by_library(body))


@in_c
def test_broken_bytes_neither_crash_nor_differ() -> None:
    dice, known = random.Random(29), bodies()
    compared = 0
    for _ in range(3000):
        body = bytearray(dice.choice(known))
        for _ in range(dice.randint(1, 4)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        raw = bytes(body[: dice.randint(1, len(body))] if dice.random() < 0.2 else body)
        request_heads.heads_of(raw)
        ours, theirs = _read(read_body, raw), _read(by_library, raw)
        if any(isinstance(each, Span) for each in theirs):
            assert ours == theirs
            compared += 1
        try:
            split_proto(raw, TRACES)
        except LineError:
            assert not theirs
    assert compared > 300


def _read(read: Any, body: bytes) -> list[Any]:
    try:
        return list(read(body))
    except LineError:
        return []


def test_members_without_ids_are_named_and_their_neighbours_are_there() -> None:
    made = LOGS.request()
    records = made.resource_logs.add().scope_logs.add().log_records
    records.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    records.add(trace_id=b"t")
    for split in (split_proto, split_by_library):
        found = split(made.SerializeToString(), LOGS)
        assert (found.members, [each.place for each in found.bad]) == (
            1,
            ["resourceLogs[0].scopeLogs[0].logRecords[1]"],
        )
        assert list(found.bodies) == [b"t" * 16]


def test_too_many_members_are_refused() -> None:
    made = TRACES.request()
    spans = made.resource_spans.add().scope_spans.add().spans
    for number in range(MAX_MEMBERS + 1):
        spans.add(trace_id=b"t" * 16, span_id=number.to_bytes(8, "big"))
    for split in (split_proto, split_by_library):
        with pytest.raises(TooLargeError):
            split(made.SerializeToString(), TRACES)
    with pytest.raises(TooLargeError):
        split_json(request(*(span(number) for number in range(MAX_MEMBERS + 1))))


def test_without_the_compiled_file_the_library_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"".join(bodies())
    first, heads = split_proto(body, TRACES), sorted(map(repr, request_heads.heads_of(body)))
    spans = list(read_body(body))
    for module in (request_split, request_proto, request_heads):
        monkeypatch.setattr(module, "COMPILED", False)
    again = split_proto(body, TRACES)
    assert (again.members, again.bodies.keys()) == (first.members, first.bodies.keys())
    assert list(read_body(body)) == spans
    assert sorted(map(repr, request_heads.heads_of(body))) == heads
    assert not [each for each in spans if isinstance(each, Problem)]


def test_a_redacted_request_holds_no_secret_and_all_the_rest() -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 6
    made = TRACES.request()
    block = made.resource_spans.add()
    block.resource.attributes.add(
        key="process.command_args"
    ).value.array_value.values.add().string_value = f"--key={secret}"
    one = block.scope_spans.add().spans.add(
        trace_id=b"t" * 16, span_id=b"s" * 8, name=f"call {secret}", end_time_unix_nano=1
    )
    one.status.message = f"refused: Bearer {secret}"
    one.attributes.add(
        key="gen_ai.input.messages"
    ).value.string_value = f'[{{"role": "user", "content": "my key is {secret}"}}]'
    one.attributes.add(key="nested").value.kvlist_value.values.add(key="api_key").value.string_value = secret
    one.attributes.add(key="kept").value.string_value = "words"
    one.events.add(name="e").attributes.add(key="header").value.string_value = f"Authorization: Bearer {secret}"
    cleaned = redacted(made.SerializeToString(), TRACES)
    assert secret.encode() not in cleaned
    (span_read,) = (each for each in read_body(cleaned) if isinstance(each, Span))
    assert span_read.attributes["kept"] == "words"
    assert "REDACTED" in span_read.attributes["gen_ai.input.messages"]
    for body in bodies():
        assert list(read_body(redacted(body, TRACES))) == list(read_body(body))
