"""API keys: collected from the headers and query of a call, and removed from its bodies.

An API may repeat a key that it refuses, and an agent may print its environment. Captures hold API keys in neither
place.
"""

from base64 import b64decode
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from agents.redaction.secret_assignments import SecretName, looks_secret
from agents.redaction.secret_shapes import is_placeholder
from schemas.jsontext import compact

KEY_HEADERS = ("authorization", "x-api-key", "api-key")
"""Headers that carry a key of an API."""

PARAMETERS = ("key", "token", "secret", "password", "sig", "credential")
"""A header or a parameter of the query with one of these in its name may authorize."""

LONG = 24
"""Minimum length of a key: a value of this length does not occur in a conversation by chance."""

REMOVED = "[REDACTED:authorization]"


def keys_of(headers: Sequence[tuple[str, str]], query: str) -> tuple[str, ...]:
    """Return the keys of a request, the longest first. Placeholders of local servers are not treated as keys."""
    given: list[str] = []
    for name, value in headers:
        lower = name.lower()
        if lower == "cookie":
            given += [pair.partition("=")[2].strip() for pair in value.split(";")]
        elif "auth" in lower or any(word in lower for word in PARAMETERS):
            given += _credentials(value.strip())
    given += [value for name, value in parse_qsl(query) if any(word in name.lower() for word in PARAMETERS)]
    return tuple(sorted({each for each in given if _is_key(each)}, key=lambda each: (-len(each), each)))


def _credentials(value: str) -> list[str]:
    """The parts of a credential; of basic authentication the password, too."""
    scheme, _, rest = value.partition(" ")
    rest = rest.strip()
    if scheme.lower() != "basic":
        return [rest or value]
    try:
        return [rest, b64decode(rest, validate=True).decode("latin-1").partition(":")[2]]
    except ValueError:
        return [rest]


def _is_key(value: str) -> bool:
    if len(value) >= LONG:
        return " " not in value and not is_placeholder(value)
    return len(value) >= 8 and looks_secret(value, SecretName.TOKEN)


def may_hold(raw: bytes, keys: Sequence[str]) -> bool:
    """Whether a JSON text may have a key in one of its strings."""
    return b"\\u00" in raw or any(compact(key)[1:-1].encode() in raw for key in keys)


def without_keys(value: Any, keys: Sequence[str]) -> Any:
    """Return a JSON value with the keys removed from its strings; the same object if there are none."""
    if isinstance(value, str):
        for key in keys:
            value = value.replace(key, REMOVED)
        return value
    if isinstance(value, list):
        return [without_keys(each, keys) for each in value]
    if isinstance(value, dict):
        return {without_keys(name, keys): without_keys(each, keys) for name, each in value.items()}
    return value
