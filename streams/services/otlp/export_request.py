"""An export request over HTTP: its form by its headers, its bytes unpacked within limits, and the answers that exporters read. Pure."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from agents.importers.otlp.request_json import Problem
from agents.importers.otlp.request_split import LOGS, TRACES, Signal
from schemas.base import MAX_ID, MAX_INDEX
from streams.services.gateway.problems import TOO_LARGE, RefusedError
from streams.services.web.auth import Caller

PROTOBUF, JSON = "application/x-protobuf", "application/json"

MAX_UNPACKED = 64 * 1024 * 1024
"""Largest size of a decompressed body."""

STEP = 1024 * 1024
"""Bytes that are unpacked at once: a bomb is noticed this soon."""

NAMED = 8
"""Bad members that an answer names; the others are counted."""

PATHS: Mapping[str, Signal] = {"/v1/traces": TRACES, "/v1/logs": LOGS}

_HEADERS = ("x-braid-rollout", "x-braid-branch", "x-braid-attempt")
_RESPONSES = {TRACES.name: ExportTraceServiceResponse, LOGS.name: ExportLogsServiceResponse}
_REJECTED = {TRACES.name: "rejected_spans", LOGS.name: "rejected_log_records"}
_REJECTED_JSON = {TRACES.name: "rejectedSpans", LOGS.name: "rejectedLogRecords"}


class Form(NamedTuple):
    """The encoding of a request."""

    media_type: str
    is_packed: bool


def form_of(headers: Mapping[str, str]) -> Form:
    """Read the form of a request. Raises RefusedError (415)."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (PROTOBUF, JSON):
        raise RefusedError(415, f"expected {PROTOBUF} or {JSON}; gRPC is not spoken here", field="content-type")
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", ""):
        raise RefusedError(415, "expected gzip, or no encoding", field="content-encoding")
    return Form(media_type, coding == "gzip")


def unpacked(body: bytes, take: Callable[[int], None]) -> bytes:
    """Decompress a body; `take` is called with the number of its bytes as they are decompressed. Raises RefusedError
    (400, 413).
    """
    pieces: list[bytes] = []
    size, left = 0, body
    try:
        while left:
            stream = zlib.decompressobj(31)
            while left and not stream.eof:
                piece = stream.decompress(left, STEP)
                left = stream.unconsumed_tail
                size += len(piece)
                if size > MAX_UNPACKED:
                    raise RefusedError(
                        TOO_LARGE, f"more than {MAX_UNPACKED} bytes when unpacked; send less", field="body"
                    )
                take(len(piece))
                pieces.append(piece)
            if not stream.eof:
                raise RefusedError(400, "the gzip stream is cut", field="body")
            left = stream.unused_data
    except zlib.error as error:
        raise RefusedError(400, f"not gzip: {error}", field="body") from None
    return b"".join(pieces)


def identity_of(headers: Mapping[str, str], caller: Caller) -> str | None:
    """The branch that a sender names outside its spans: by its token, else in headers. Raises RefusedError (400, 403)."""
    rollout, branch, attempt = (headers.get(name) for name in _HEADERS)
    told: dict[str, object] = {}
    if rollout is not None:
        if not 0 < len(rollout) <= MAX_ID:
            raise RefusedError(400, f"expected 1 to {MAX_ID} characters", field=_HEADERS[0])
        told["rollout_id"] = rollout
    for name, field, value in (("branch_index", _HEADERS[1], branch), ("attempt", _HEADERS[2], attempt)):
        if value is not None:
            told[name] = _index(value, field)
    if caller.rollout is not None:
        if told.get("rollout_id", caller.rollout) != caller.rollout:
            raise RefusedError(403, "this token is bound to another rollout", field=_HEADERS[0])
        if caller.branch is not None and told.get("branch_index", caller.branch) != caller.branch:
            raise RefusedError(403, "this token is bound to another branch", field=_HEADERS[1])
        told |= {"rollout_id": caller.rollout, "bound": True}
        told |= {} if caller.branch is None else {"branch_index": caller.branch}
    return orjson.dumps(told).decode() if told else None


def _index(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) <= MAX_INDEX):
        raise RefusedError(400, f"expected a whole number from 0 to {MAX_INDEX}", field=field)
    return int(text)


def success(signal: Signal, media_type: str, bad: list[Problem]) -> bytes:
    """The answer to a request that is on the log, with the members that are not."""
    if not bad:
        return b"" if media_type == PROTOBUF else b"{}"
    named = "; ".join(f"{each.place}: {each.reason}" for each in bad[:NAMED])
    words = named + (f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else "")
    if media_type == JSON:
        return orjson.dumps({"partialSuccess": {_REJECTED_JSON[signal.name]: str(len(bad)), "errorMessage": words}})
    response: Any = _RESPONSES[signal.name]()
    setattr(response.partial_success, _REJECTED[signal.name], len(bad))
    response.partial_success.error_message = words
    return bytes(response.SerializeToString())


def failure(media_type: str, words: str) -> bytes:
    """A google.rpc.Status: a message, in the request's type."""
    if media_type != PROTOBUF:
        return orjson.dumps({"message": words})
    text = words.encode()[:STEP]
    size = bytearray()
    length = len(text)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return b"\x12" + bytes([*size, length]) + text
