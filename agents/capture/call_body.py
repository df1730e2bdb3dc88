"""The body of a call's capture: the request as a difference, and the assembled response."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Any, NamedTuple

from agents.capture.assembly import Assembled, assemble
from agents.capture.event_stream import events_of
from agents.capture.keys_of_calls import may_hold, without_keys
from agents.capture.protocol import HISTORY, Protocol
from agents.capture.request_delta import shrink
from agents.capture.token_request import tokens_apart
from agents.models.engine_tokens import tokens_of
from agents.redaction.redaction import redact_json
from schemas.jsontext import compact, parse, parse_unique
from schemas.repeated_keys import RepeatedKeyError

MAX_WORDS = 4000
"""Characters of a response that could not be read, kept with the error."""


class Exchanged(NamedTuple):
    """One call as it went over the wire, its bodies decoded."""

    protocol: Protocol
    request: bytes
    response: bytes | None
    """None if nothing arrived, or too much to keep."""
    status: int | None
    is_stream: bool
    """Whether the response is a stream of events."""
    cut: str | None
    """Why the response is incomplete: the client or the upstream disconnected; None if it is complete."""
    started_ms: int
    first_byte_ms: int | None
    latency_ms: int
    redacting: bool = False
    keys: tuple[str, ...] = ()
    """Keys that authorized the call."""
    policy_version: str = ""
    """The version of the policy, given by the caller."""


class CallBody(NamedTuple):
    """A capture's body."""

    body: bytes
    digests: tuple[bytes, ...]
    """Digests that the branch has once this is stored."""


def call_body(call: Exchanged, known: AbstractSet[bytes]) -> CallBody:
    """Return the body of a call's capture; `known` has the digests of messages captured earlier for this branch. Raises
    TooManyItemsError.
    """
    request, is_ambiguous = _request(call.request)
    response, error = _outcome(call)
    tokens = None
    if response is not None and call.protocol in ("openai-chat", "openai-completions"):
        tokens, response = tokens_of(response), tokens_apart(response)
    if request is None:
        request, error = {}, error or {"kind": "bad_request", "message": "the request is no JSON object"}
    if call.keys:
        request = without_keys(request, call.keys) if may_hold(call.request, call.keys) else request
        response, error = without_keys(response, call.keys), without_keys(error, call.keys)
    if call.redacting:
        request, response, error = (redact_json(each).value for each in (request, response, error))
    shrunk = shrink(request, HISTORY[call.protocol], known)
    told: dict[str, Any] = {
        "protocol": call.protocol, "is_delta": True, "request": shrunk.delta, "response": response, "tokens": tokens,
        "policy_version": call.policy_version or None,
        "status": call.status,
        "error": error, "repeated_keys": is_ambiguous or None, "started_ms": call.started_ms,
        "first_byte_ms": call.first_byte_ms, "latency_ms": call.latency_ms,
        "request_sha256": sha256(call.request).hexdigest(),
        "response_sha256": None if call.response is None else sha256(call.response).hexdigest(),
    }  # fmt: skip
    body = compact({name: value for name, value in told.items() if value is not None}).encode()
    return CallBody(body, shrunk.digests)


def _request(raw: bytes) -> tuple[dict[str, Any] | None, bool]:
    """The request, and whether an object of it has a key twice: the model may have seen the other value."""
    try:
        value = parse_unique(raw)
    except RepeatedKeyError:
        return _object(raw), True
    except ValueError:
        return None, False
    return (value if isinstance(value, dict) else None), False


def _outcome(call: Exchanged) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The response, or the error."""
    if call.status is None:
        return None, {"kind": "connection", "message": call.cut or "there is no response"}
    if call.response is None:
        kind, message = ("cut", call.cut) if call.cut else ("too_long", "the response is too long to be kept")
        return None, {"kind": kind, "message": message}
    if not 200 <= call.status < 300:
        return None, _refusal(call.response)
    found = _read(call, call.response)
    if found.error is None and found.is_whole:
        return found.response, None
    return None, found.error or _why_not_whole(call, call.response)


def _read(call: Exchanged, response: bytes) -> Assembled:
    if call.is_stream:
        try:
            events = events_of(response)
        except ValueError as error:
            unreadable = {"kind": "unreadable", "message": f"an event of the stream: {error}"}
            return Assembled(None, False, None if call.cut else unreadable)
        return assemble(call.protocol, events)
    value = _object(response)
    return Assembled(value, value is not None and call.cut is None, _inner_error(value))


def _why_not_whole(call: Exchanged, response: bytes) -> dict[str, Any]:
    if call.cut is not None or call.is_stream:
        return {"kind": "cut", "message": call.cut or "the stream stopped before its end"}
    return {"kind": "unreadable", "message": _words(response)}


def _refusal(response: bytes) -> dict[str, Any]:
    value = _object(response) or {}
    return _inner_error(value) or {"message": _words(response)}


def _inner_error(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    error = None if value is None else value.get("error")
    if isinstance(error, dict):
        return {name: text for name, text in error.items() if isinstance(text, str) and name != "kind"} or {
            "message": compact(error)
        }
    return {"message": error} if isinstance(error, str) and error else None


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = parse(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _words(raw: bytes) -> str:
    return raw[: 4 * MAX_WORDS].decode("utf-8", "replace")[:MAX_WORDS]
