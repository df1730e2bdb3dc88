"""Read spans and log records of an OTLP JSON request: hex ids, numbers as texts or numbers, enums by number or name.

A span that cannot be read becomes a problem with its position; other spans are still read. Unknown fields are ignored,
as OTLP asks.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agents.importers.line_error import LineError
from agents.importers.otlp.spans import Span, SpanEvent
from agents.importers.traces.fields import an_array, an_object, object_in
from schemas.jsontext import kind_of

_HEX = re.compile(r"[0-9a-fA-F]+")
_READ = frozenset({
    "traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano", "status", "attributes", "events", "flags",
})  # fmt: skip
MAX_NANOS = 2**63 - 1


class Problem(NamedTuple):
    """A part of a request that cannot be read."""

    place: str
    reason: str
    raw: Any


def read_request(request: Any) -> Iterator[Span | Problem]:
    """Yield the spans of a request.

    A log record becomes a span that has only its event. Raises LineError for something else.
    """
    body = an_object(request, "")
    spans, logs = _either(body, "resourceSpans", "resource_spans"), _either(body, "resourceLogs", "resource_logs")
    if spans is None and logs is None:
        if "resourceMetrics" in body or "resource_metrics" in body:
            return
        raise LineError("resourceSpans", "missing")
    for number, each in enumerate(_array(spans, "resourceSpans")):
        yield from _guarded(
            f"resourceSpans[{number}]", each, ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"), "spans"
        )
    for number, each in enumerate(_array(logs, "resourceLogs")):
        yield from _guarded(f"resourceLogs[{number}]", each, ("scopeLogs", "scope_logs"), "logRecords")


def _guarded(place: str, entry: Any, scopes: tuple[str, ...], member: str) -> Iterator[Span | Problem]:
    try:
        resource = attributes_of(object_in(an_object(entry, ""), "resource"))
        inner = _array(_either(entry, *scopes), scopes[0])
    except LineError as error:
        yield Problem(f"{place}.{error.field}".rstrip("."), error.reason, entry)
        return
    for number, scoped in enumerate(inner):
        where = f"{place}.{scopes[0]}[{number}]"
        try:
            scope = object_in(an_object(scoped, ""), "scope")
            values = _array(_either(scoped, member, "log_records"), member)
        except LineError as error:
            yield Problem(f"{where}.{error.field}".rstrip("."), error.reason, scoped)
            continue
        told = " ".join(str(scope[name]) for name in ("name", "version") if scope.get(name))
        for index, value in enumerate(values):
            try:
                read = _span if member == "spans" else _log
                yield read(an_object(value, ""), resource, told)
            except (LineError, ValueError, TypeError, RecursionError) as error:
                field = f".{error.field}" if isinstance(error, LineError) and error.field else ""
                reason = error.reason if isinstance(error, LineError) else f"not a span: {error}"
                yield Problem(f"{where}.{member}[{index}]{field}", reason, value)


def _span(value: dict[str, Any], resource: dict[str, Any], scope: str) -> Span:
    status = _either(value, "status")
    status = status if isinstance(status, dict) else {}
    parent = _either(value, "parentSpanId", "parent_span_id")
    flags = value.get("flags")
    return Span(
        _id(_either(value, "traceId", "trace_id"), 16, "traceId"),
        _id(_either(value, "spanId", "span_id"), 8, "spanId"),
        None if parent in (None, "", "0000000000000000") else _id(parent, 8, "parentSpanId"),
        str(value.get("name") or ""),
        _nanos(_either(value, "startTimeUnixNano", "start_time_unix_nano"), "startTimeUnixNano"),
        _nanos(_either(value, "endTimeUnixNano", "end_time_unix_nano"), "endTimeUnixNano"),
        str(status.get("code") or "").upper().removeprefix("STATUS_CODE_") in ("2", "ERROR"),
        str(status.get("message") or ""),
        attributes_of(value),
        [_event(each) for each in _array(value.get("events"), "events")],
        resource,
        scope,
        {
            name: each
            for name, each in value.items()
            if name not in _READ and each not in (None, "", [], {}) and "_" not in name
        },
        isinstance(flags, int) and flags & 0x300 == 0x300,
    )


def _event(value: Any) -> SpanEvent:
    event = an_object(value, "events")
    time = _nanos(_either(event, "timeUnixNano", "time_unix_nano"), "timeUnixNano")
    return SpanEvent(str(event.get("name") or ""), time, attributes_of(event))


def _log(value: dict[str, Any], resource: dict[str, Any], scope: str) -> Span:
    """Convert a log record to a span with only an event."""
    attributes = attributes_of(value)
    name = _either(value, "eventName", "event_name") or attributes.get("event.name") or ""
    time = _nanos(_either(value, "timeUnixNano", "time_unix_nano"), "timeUnixNano")
    time = time or _nanos(_either(value, "observedTimeUnixNano", "observed_time_unix_nano"), "observedTimeUnixNano")
    trace, span = _either(value, "traceId", "trace_id"), _either(value, "spanId", "span_id")
    event = SpanEvent(str(name), time, attributes, any_value(value.get("body")))
    ids = _id(trace, 16, "traceId"), _id(span, 8, "spanId")
    return Span(*ids, None, "", 0, 0, False, "", {}, [event], resource, scope, {})


def attributes_of(value: dict[str, Any]) -> dict[str, Any]:
    """Return attributes by key. Raises LineError."""
    found: dict[str, Any] = {}
    for each in _array(value.get("attributes"), "attributes"):
        pair = each if isinstance(each, dict) else an_object(each, "attributes")
        key, held = pair.get("key"), pair.get("value")
        if not isinstance(key, str):
            raise LineError("attributes.key", f"expected a text, found {kind_of(key)}")
        if isinstance(held, dict) and len(held) == 1 and "stringValue" in held:  # the usual case
            found[key] = held["stringValue"]
        else:
            found[key] = any_value(held)
    return found


def any_value(value: Any) -> Any:
    """Convert an AnyValue to a plain value; an empty one becomes null. Raises LineError."""
    if value is None:
        return None
    holder = an_object(value, "attributes.value")
    for name in holder if len(holder) == 1 else _VALUES:
        read = _VALUES.get(name)
        if read is not None and name in holder:
            return read(holder[name])
    return None


def _texts(value: Any) -> Any:
    return value


def _whole(value: Any) -> Any:
    try:
        number = int(value)
    except (ValueError, TypeError):
        return None if value is None else str(value)
    return number if -(2**63) <= number < 2**64 else str(value)


def _real(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _bytes(value: Any) -> Any:
    """Convert bytes from base64, as JSON has them, to hex."""
    try:
        return base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError, TypeError):
        return value


def _list(value: Any) -> list[Any]:
    return [any_value(each) for each in _array(an_object(value, "arrayValue").get("values"), "arrayValue.values")]


def _pairs(value: Any) -> dict[str, Any]:
    return attributes_of({"attributes": an_object(value, "kvlistValue").get("values")})


_VALUES = {
    "stringValue": _texts, "intValue": _whole, "boolValue": _texts, "doubleValue": _real, "arrayValue": _list, "kvlistValue": _pairs,
    "bytesValue": _bytes, "string_value": _texts, "int_value": _whole, "bool_value": _texts, "double_value": _real,
    "array_value": _list, "kvlist_value": _pairs, "bytes_value": _bytes,
}  # fmt: skip
"""The reader of each kind of AnyValue."""


def _id(value: Any, length: int, field: str) -> str:
    """Return an id in hex. Base64, the form in plain protobuf JSON, is accepted, too."""
    if not isinstance(value, str) or not value:
        raise LineError(field, "missing" if value in (None, "") else f"expected a text, found {kind_of(value)}")
    if len(value) == 2 * length and _HEX.fullmatch(value):
        return value.lower()
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != length:
        raise LineError(field, f"expected {2 * length} hex digits, found {value[:64]!r}")
    return raw.hex()


def _nanos(value: Any, field: str) -> int:
    if value in (None, ""):
        return 0
    try:
        number = int(value) if not isinstance(value, bool) else -1
    except (ValueError, TypeError, OverflowError):
        number = -1
    if not 0 <= number <= MAX_NANOS:
        raise LineError(field, f"expected nanoseconds since 1970, found {str(value)[:64]!r}")
    return number


def _array(value: Any, field: str) -> list[Any]:
    """Return the array; null becomes an empty one."""
    return [] if value is None else an_array(value, field)


def _either(value: dict[str, Any], *names: str) -> Any:
    for name in names:
        found = value.get(name)
        if found is not None:
            return found
    return None
