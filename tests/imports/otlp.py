"""Export requests for tests, as an exporter would write them."""

from typing import Any

START = 1_794_000_000_000_000_000

Span = dict[str, Any]


def value(given: Any) -> dict[str, Any]:
    """An AnyValue."""
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}
    if isinstance(given, float):
        return {"doubleValue": given}
    if isinstance(given, list):
        return {"arrayValue": {"values": [value(each) for each in given]}}
    if isinstance(given, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": value(each)} for key, each in given.items()]}}
    return {"stringValue": given}


def attributes(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(each)} for key, each in given.items()]


def span(
    number: int, parent: int | None = None, trace: int = 1, name: str = "chat", lasts: int = 5, **more: Any
) -> Span:
    """A span that begins `number` ms after the others; `attributes` are plain values."""
    start = START + number * 1_000_000
    made: Span = {
        "traceId": f"{trace:032x}", "spanId": f"{number + 1:016x}", "name": name, "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + lasts * 1_000_000), "status": {},
    }  # fmt: skip
    if parent is not None:
        made["parentSpanId"] = f"{parent + 1:016x}"
    given = more.pop("attributes", {})
    return made | {"attributes": attributes(given)} | more


def request(*spans: Span, resource: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": attributes(resource or {})},
                "scopeSpans": [{"scope": {"name": "app"}, "spans": list(spans)}],
            }
        ]
    }


def event(name: str, **given: Any) -> dict[str, Any]:
    return {"name": name, "timeUnixNano": str(START), "attributes": attributes(given.pop("attributes", {}) | given)}


FAILED = {"code": 2, "message": "Error code: 429 - Rate limit reached"}
