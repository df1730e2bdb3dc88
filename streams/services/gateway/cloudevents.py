"""CloudEvents 1.0 (JSON format and HTTP binding): the attributes of an envelope, applied to its item.

The item is the data. Of the attributes, `sequence` gives a seq and `time` a timestamp to events that have none; the
others must be present and are not used.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

from agents.importers.line_error import LineError
from schemas.base import MAX_EXACT
from schemas.jsontext import parse_unique

SPEC_VERSION = "1.0"
REQUIRED = ("id", "source", "type")
PREFIX = "ce-"


class Attributes(NamedTuple):
    """The fields of an envelope that we use."""

    seq: int | None
    time_ms: int | None


def attributes(envelope: Mapping[str, Any]) -> Attributes:
    """Check an envelope. Raises LineError."""
    if envelope.get("specversion") != SPEC_VERSION:
        raise LineError("specversion", f"expected {SPEC_VERSION}")
    for name in REQUIRED:
        if not isinstance(envelope.get(name), str) or not envelope[name]:
            raise LineError(name, "a CloudEvent needs this attribute, a text that is not empty")
    return Attributes(_sequence(envelope.get("sequence")), _time(envelope.get("time")))


def data(envelope: Mapping[str, Any]) -> Any:
    """The item in a structured envelope. Raises LineError."""
    kind = envelope.get("datacontenttype")
    if kind is not None and not (isinstance(kind, str) and "json" in kind.lower()):
        raise LineError("datacontenttype", "expected application/json")
    if envelope.get("data") is not None:
        return envelope["data"]
    encoded = envelope.get("data_base64")
    if not isinstance(encoded, str):
        raise LineError("data", "missing")
    try:
        return parse_unique(base64.b64decode(encoded, validate=True))
    except (ValueError, binascii.Error) as error:
        raise LineError("data_base64", f"not JSON in base64: {error}") from None


def binary_attributes(headers: Mapping[str, str]) -> dict[str, Any]:
    """The attributes in `ce-` headers; their values are percent-encoded."""
    return {name.removeprefix(PREFIX): unquote(value) for name, value in headers.items() if name.startswith(PREFIX)}


def _sequence(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_EXACT:
        raise LineError("sequence", "expected a whole number from 0 on")
    return value


def _time(value: Any) -> int | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        raise LineError("time", "expected an RFC 3339 time") from None
