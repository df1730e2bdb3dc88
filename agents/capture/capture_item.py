"""Items that a tracer sends become captures: checked, and stored as the fold reads them."""

from collections.abc import Mapping
from typing import Any

from agents.capture.protocol import PROTOCOLS
from agents.importers.line_error import LineError, TooLargeError
from agents.redaction.redaction import redact_json
from schemas.base import MAX_EXACT, MAX_ID
from schemas.captures import Capture
from schemas.events import EndStatus
from schemas.jsontext import compact, kind_of

MAX_EVENT = 1024 * 1024
"""Bytes of an event's data."""

STATUSES: tuple[EndStatus, ...] = ("answered", "failed", "aborted", "infra_error")

TOLD_BY_CALLS = ("message", "model_call")
"""Events that follow from calls alone: an agent that also wrote them could invent what its model said, in the proxy's
name.
"""

_CALL = ("protocol", "request", "response", "status", "error", "started_ms", "latency_ms")


def capture_of(
    item: Mapping[str, Any], place: Mapping[str, Any], received_ms: int, *, redacting: bool, source: str = "tracer"
) -> Capture:
    """Return the capture of an item; `place` has rollout_id, branch_index and attempt. Raises LineError."""
    kind, name = item.get("kind"), item.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID:
        raise LineError("id", f"expected a text of 1 to {MAX_ID} characters that no other item of the branch has")
    if kind == "event":
        body = _event(item)
    elif kind == "call":
        body = _call(item)
    elif kind == "end":
        body = _end(item)
    else:
        raise LineError("kind", "expected event, call or end")
    told = redact_json(body).value if redacting else body
    return Capture(
        **place, capture_id=name, kind=kind, source=source, received_ms=received_ms, body=compact(told).encode()
    )


def _event(item: Mapping[str, Any]) -> dict[str, Any]:
    event = _object(item, "event")
    kind = event.get("event")
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_ID:
        raise LineError(
            "event.event", "expected the kind of event: tool_call, tool_result, final_answer, user_message, ..."
        )
    if kind in TOLD_BY_CALLS:
        raise LineError(
            "event.event", f"{kind}: of a captured branch it follows from the calls; send an item of kind call"
        )
    channel = event.get("channel")
    if channel is not None and (not isinstance(channel, str) or len(channel) > MAX_ID):
        raise LineError("event.channel", f"expected a text of at most {MAX_ID} characters")
    if not isinstance(event.get("data"), dict):
        raise LineError("event.data", f"expected an object, found {kind_of(event.get('data'))}")
    if len(compact(event["data"]).encode()) > MAX_EVENT:
        raise TooLargeError("event.data", f"more than {MAX_EVENT} bytes")
    return {"event": event, **_number(item, "at_ms")}


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    if item.get("protocol") not in PROTOCOLS:
        raise LineError("protocol", f"expected one of {', '.join(PROTOCOLS)}")
    _object(item, "request")
    for name in ("response", "error"):
        if item.get(name) is not None:
            _object(item, name)
    for name in ("started_ms", "latency_ms", "status"):
        _number(item, name)
    return {name: item[name] for name in _CALL if item.get(name) is not None}


def _end(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"reason": "client", **end_fields(item)}


def end_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """How a branch ended, in its agent's words. Raises LineError."""
    status = item.get("status")
    if status is not None and status not in STATUSES:
        raise LineError("status", f"expected one of {', '.join(STATUSES)}")
    for name in ("answer", "error"):
        if item.get(name) is not None and not isinstance(item[name], str):
            raise LineError(name, f"expected a text, found {kind_of(item[name])}")
        if len(item.get(name) or "") > MAX_EVENT // 4:
            raise TooLargeError(name, f"more than {MAX_EVENT // 4} characters")
    return {name: item[name] for name in ("status", "answer", "error") if item.get(name) is not None}


def _object(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = item.get(name)
    if not isinstance(found, dict):
        raise LineError(name, f"expected an object, found {kind_of(found)}")
    return found


def _number(item: Mapping[str, Any], name: str) -> dict[str, int]:
    found = item.get(name)
    if found is None:
        return {}
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MAX_EXACT:
        raise LineError(name, f"expected a whole number from 0 on, found {kind_of(found)}")
    return {name: found}
