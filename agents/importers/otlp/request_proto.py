"""Read spans and log records of a protobuf request with `_wire.c` or the generated code of opentelemetry-proto."""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from agents.importers.line_error import LineError
from agents.importers.otlp.request_json import MAX_NANOS, Problem
from agents.importers.otlp.spans import Span, SpanEvent

try:
    from agents.importers.otlp._wire import read_spans
except ImportError:
    COMPILED = False
else:
    COMPILED = True


def read_body(body: bytes) -> Iterator[Span | Problem]:
    """Yield the spans of a body. Log records become spans with only their event. Raises LineError for other bytes."""
    read = read_spans(body, Span, SpanEvent, Problem) if COMPILED else None
    if read and any(isinstance(each, Span) for each in read):
        yield from read
        return
    yield from by_library(body)


def by_library(body: bytes) -> Iterator[Span | Problem]:
    """Do the same with the library only. Raises LineError."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise LineError("", f"no export request in protobuf: {error}") from None
    found = list(_spans(request))
    if any(isinstance(each, Span) for each in found) or not body:
        yield from found
        return
    # Logs have the same outer fields, and parsed as spans they have no ids.
    try:
        logs = list(_logs(ExportLogsServiceRequest.FromString(body)))
    except DecodeError:
        logs = []
    if not any(isinstance(each, Span) for each in logs) and not found:
        raise LineError("", "no export request in protobuf: it has no spans")
    yield from logs if any(isinstance(each, Span) for each in logs) else found


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span | Problem]:
    for number, entry in enumerate(request.resource_spans):
        resource = _attributes(entry.resource.attributes)
        for place, scoped in enumerate(entry.scope_spans):
            scope = f"{scoped.scope.name} {scoped.scope.version}".strip()
            for index, span in enumerate(scoped.spans):
                where = f"resourceSpans[{number}].scopeSpans[{place}].spans[{index}]"
                if len(span.trace_id) != 16 or len(span.span_id) != 8:
                    yield Problem(where, "traceId or spanId: missing, or of another length", span.name)
                else:
                    yield _span(span, resource, scope)


def _span(span: ProtoSpan, resource: dict[str, Any], scope: str) -> Span:
    more = {"kind": ProtoSpan.SpanKind.Name(span.kind)} if span.kind in ProtoSpan.SpanKind.values() else {}
    links: list[dict[str, Any]] = [
        {"traceId": link.trace_id.hex(), "spanId": link.span_id.hex(), "attributes": _attributes(link.attributes)}
        for link in span.links
    ]
    events = [SpanEvent(each.name, _nanos(each.time_unix_nano), _attributes(each.attributes)) for each in span.events]
    return Span(
        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex() if any(span.parent_span_id) else None, span.name,
        _nanos(span.start_time_unix_nano), _nanos(span.end_time_unix_nano), span.status.code == Status.STATUS_CODE_ERROR,
        span.status.message, _attributes(span.attributes), events, resource, scope,
        more | ({"links": links} if links else {}), span.flags & 0x300 == 0x300,
    )  # fmt: skip


def _logs(request: ExportLogsServiceRequest) -> Iterator[Span | Problem]:
    for number, entry in enumerate(request.resource_logs):
        resource = _attributes(entry.resource.attributes)
        for place, scoped in enumerate(entry.scope_logs):
            scope = f"{scoped.scope.name} {scoped.scope.version}".strip()
            for index, record in enumerate(scoped.log_records):
                if len(record.trace_id) == 16 and len(record.span_id) == 8:
                    yield _log(record, resource, scope)
                else:
                    yield Problem(
                        f"resourceLogs[{number}].scopeLogs[{place}].logRecords[{index}]", "traceId: missing", ""
                    )


def _log(record: LogRecord, resource: dict[str, Any], scope: str) -> Span:
    attributes = _attributes(record.attributes)
    name = record.event_name or str(attributes.get("event.name") or "")
    time = _nanos(record.time_unix_nano or record.observed_time_unix_nano)
    event = SpanEvent(name, time, attributes, _value(record.body))
    return Span(
        record.trace_id.hex(), record.span_id.hex(), None, "", 0, 0, False, "", {}, [event], resource, scope, {}
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    held = getattr(value, kind)
    if kind == "array_value":
        return [_value(each) for each in held.values]
    if kind == "kvlist_value":
        return _attributes(held.values)
    if kind == "bytes_value":
        return held.hex()
    return str(held) if kind == "double_value" and held - held != 0 else held  # NaN and infinities become text


def _nanos(value: int) -> int:
    return value if value <= MAX_NANOS else 0
