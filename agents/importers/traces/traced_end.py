"""Derive the end of a traced run, and the reasons of failed calls, from exception texts.

Failures of a provider, a harness or an environment are never counted as the agent's failure.
"""

import re
from typing import NamedTuple

from agents.importers.traces.call_facts import CallTrouble

_STATUS = re.compile(r"(?:error code|status code|status|http|code)\W{0,3}\b([45]\d\d)\b", re.IGNORECASE)
_KINDS = (
    (
        "too_large",
        ("context_length_exceeded", "context length", "maximum context", "prompt is too long", "context window"),
    ),
    ("rate_limited", ("ratelimit", "rate limit", "rate_limit", "too many requests", "quota", "resource_exhausted")),
    ("overloaded", ("overloaded",)),
    ("timeout", ("timeout", "timed out", "deadline")),
    ("connection", ("connection", "econn", "socket", "unreachable", "name resolution")),
    ("setup", ("authentication", "permission", "api key", "unauthorized", "notfounderror", "model_not_found")),
    ("http_5xx", ("internal server", "service unavailable", "bad gateway", "unavailable", "internalservererror")),
    ("bad_request", ("badrequest", "bad request", "invalid_request", "unprocessable")),
)
"""Words in exception texts, by kind of trouble. The first match counts."""

_BY_STATUS = {
    400: "bad_request", 401: "setup", 403: "setup", 404: "setup", 408: "timeout", 413: "too_large", 429: "rate_limited",
    529: "overloaded",
}  # fmt: skip

_OWN_LIMIT = (
    "recursion limit", "graphrecursionerror", "maxturnsexceeded", "max turns", "max_turns", "maximum number of turns", "max iterations",
    "max_iterations", "iteration limit", "step limit", "modelbehaviorerror", "outputparserexception", "unexpectedmodelbehavior",
    "usagelimitexceeded",
)  # fmt: skip
_STOPPED = (
    "cancellederror",
    "cancelled",
    "canceled",
    "keyboardinterrupt",
    "interrupted",
    "guardrailtripwire",
    "tripwire",
)


MAX_WORDS = 2000
"""Maximum characters of an error text. The span has the complete text."""


def error_words(text: str) -> str:
    """Return the text of an exception without a traceback that follows it."""
    return text.split("Traceback (most recent", 1)[0].strip()[:MAX_WORDS] or text[:MAX_WORDS]


class TracedEnd(NamedTuple):
    """The end of a branch."""

    status: str | None
    """answered, failed, aborted, infra_error; None: it has not ended."""
    error: str | None = None


def call_trouble(message: str, error_type: str | None = None, status: int | None = None) -> CallTrouble:
    """Return the reason of a failed call. The HTTP status, or else the exception text, determines its kind."""
    said = f"{error_type or ''} {message}".lower()
    found = _STATUS.search(said)
    code = status if status is not None else (int(found.group(1)) if found else None)
    words = next((kind for kind, signs in _KINDS if any(sign in said for sign in signs)), None)
    kind = words if words == "too_large" else _of_status(code) or words or "failed"
    return CallTrouble(kind, message or error_type or "")


def _of_status(code: int | None) -> str | None:
    if code is None:
        return None
    return _BY_STATUS.get(code) or ("http_5xx" if 500 <= code < 600 else "bad_request" if 400 <= code < 500 else None)


def traced_end(*, ended: bool, last_trouble: CallTrouble | None, error: str | None) -> TracedEnd:
    """Return the end of a run. `last_trouble` is the failure of its last call; `error` is the exception of its root."""
    if last_trouble is not None and (ended or error is not None):
        status = "failed" if last_trouble.kind == "too_large" else "infra_error"
        return TracedEnd(status, error or last_trouble.message)
    if error is not None:
        said = error.lower()
        if any(sign in said for sign in _OWN_LIMIT):
            return TracedEnd("failed", error)
        return TracedEnd("aborted" if any(sign in said for sign in _STOPPED) else "infra_error", error)
    return TracedEnd("answered" if ended else None)
