"""Split an export request into one request for each trace. Only ids are parsed, not whole spans.

`_wire.c` splits protobuf by walking length prefixes. Without it, or for unusual bytes, opentelemetry-proto is used.
JSON is parsed, and its spans are written in their canonical form. A member without ids is reported with its position;
other members are kept.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agents.importers.line_error import LineError, TooLargeError
from agents.importers.otlp.request_json import Problem, read_request
from agents.importers.otlp.request_proto import read_body
from agents.importers.otlp.spans import Span, plain, read_plain
from agents.redaction.redaction import redact_json
from schemas.jsontext import compact, parse

try:
    from agents.importers.otlp._wire import split
except ImportError:
    COMPILED = False
else:
    COMPILED = True

MAX_MEMBERS = 20_000
"""Maximum number of spans or log records in one request."""

_TOO_MANY: Final = f"more than {MAX_MEMBERS} in one request; send several"


class Signal(NamedTuple):
    """OTLP field names and numbers, for traces or logs."""

    name: str
    outer: str
    inner: str
    members: str
    resource_field: str
    scope_field: str
    member_field: str
    trace_number: int
    span_number: int
    request: Any


TRACES: Final = Signal(
    "traces", "resourceSpans", "scopeSpans", "spans", "resource_spans", "scope_spans", "spans", 1, 2, ExportTraceServiceRequest
)  # fmt: skip
LOGS: Final = Signal(
    "logs", "resourceLogs", "scopeLogs", "logRecords", "resource_logs", "scope_logs", "log_records", 9, 10,
    ExportLogsServiceRequest,
)  # fmt: skip


class SplitRequest(NamedTuple):
    """A request, split by trace."""

    bodies: Mapping[bytes, bytes]
    """One request per trace id, with only that trace's members."""
    members: int
    """The number of members in `bodies`."""
    bad: list[Problem]
    """Members without ids."""


def split_proto(body: bytes, signal: Signal) -> SplitRequest:
    """Split a protobuf request. Raises LineError for bytes that are not a request."""
    if not COMPILED:
        return split_by_library(body, signal)
    found = split(body, signal.trace_number, signal.span_number, MAX_MEMBERS)
    if found is None or found is True:
        return split_by_library(body, signal)
    if found is False:
        raise TooLargeError(signal.members, _TOO_MANY)
    bodies, count, bad = found
    if count + len(bad) > MAX_MEMBERS:
        raise TooLargeError(signal.members, _TOO_MANY)
    return SplitRequest(bodies, count, [Problem(_place(signal, *each[:3]), each[3], "") for each in bad])


def split_by_library(body: bytes, signal: Signal) -> SplitRequest:
    """Split a protobuf request with the library. Raises LineError."""
    try:
        request = signal.request.FromString(body)
    except DecodeError as error:
        raise LineError("", f"no export request in protobuf: {error}") from None
    made: dict[bytes, Any] = {}
    bad: list[Problem] = []
    count = 0
    for one, outer in enumerate(getattr(request, signal.resource_field)):
        for two, inner in enumerate(getattr(outer, signal.scope_field)):
            holders: dict[bytes, Any] = {}
            for three, member in enumerate(getattr(inner, signal.member_field)):
                if len(member.trace_id) != 16 or len(member.span_id) != 8:
                    reason = "its trace id or span id is missing, or of another length"
                    bad.append(Problem(_place(signal, one, two, three), reason, ""))
                    continue
                holder = holders.get(member.trace_id)
                if holder is None:
                    holder = holders[member.trace_id] = _holder(made, member.trace_id, outer, inner, signal)
                getattr(holder, signal.member_field).append(member)
                count += 1
    if count + len(bad) > MAX_MEMBERS:
        raise TooLargeError(signal.members, _TOO_MANY)
    return SplitRequest({key: value.SerializeToString() for key, value in made.items()}, count, bad)


def _holder(made: dict[bytes, Any], trace: bytes, outer: Any, inner: Any, signal: Signal) -> Any:
    """Return a new scope in the request of a trace."""
    request = made.get(trace)
    if request is None:
        request = made[trace] = signal.request()
    block = getattr(request, signal.resource_field).add()
    block.resource.CopyFrom(outer.resource)
    block.schema_url = outer.schema_url
    scope = getattr(block, signal.scope_field).add()
    scope.scope.CopyFrom(inner.scope)
    scope.schema_url = inner.schema_url
    return scope


def _place(signal: Signal, one: int, two: int, three: int) -> str:
    return f"{signal.outer}[{one}].{signal.inner}[{two}].{signal.members}[{three}]"


def split_json(request: Any, *, redacting: bool = False) -> SplitRequest:
    """Split a parsed JSON request: its spans are read and written in their canonical form. Raises LineError."""
    made: dict[bytes, list[Any]] = {}
    bad: list[Problem] = []
    for count, each in enumerate(read_request(request)):
        if count >= MAX_MEMBERS:
            raise TooLargeError("", _TOO_MANY)
        if isinstance(each, Problem):
            bad.append(each)
        else:
            value = redact_json(plain(each)).value if redacting else plain(each)
            made.setdefault(bytes.fromhex(each.trace_id), []).append(value)
    count = sum(map(len, made.values()))
    return SplitRequest({key: written(values) for key, values in made.items()}, count, bad)


def written(spans: list[Any]) -> bytes:
    """Return a body with spans in their canonical form."""
    try:
        return orjson.dumps(spans)
    except TypeError:  # an integer beyond 64 bits
        return compact(spans).encode()


def read_written(body: bytes) -> Any:
    """Read the output of `written`. Its integers have 64 bits; larger ones are also read exactly."""
    return orjson.loads(body) if body[:1] == b"[" else parse(body)


def read_split(body: bytes) -> list[Span | Problem]:
    """Return the spans of a body that a split produced. Raises LineError."""
    if body[:1] != b"[":
        return list(read_body(body))
    return [read_plain(each) for each in read_written(body)]
