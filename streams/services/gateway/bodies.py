"""The forms of a body: one JSON value, an array, lines, or CloudEvents. All forms give items with positions.

Pure. A bad item is an item with its problem: its neighbours are read as if it were not there. Only an array whose
brackets do not close, or a body that is not JSON at all, is bad as a whole.
"""

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from io import BytesIO
from typing import Any, NamedTuple

from agents.importers.line_error import LineError
from schemas.jsontext import kind_of, parse_unique
from schemas.repeated_keys import RepeatedKeyError
from streams.services.gateway import cloudevents
from streams.services.gateway.problems import TOO_LARGE, ItemError, Position, RefusedError

MAX_ITEMS = 20_000
"""Most items of one request, because an answer lists every bad one."""

MAX_CONTAINERS = 1_000_000
"""Brackets that open in one JSON text: each becomes an object in memory, far larger than its two bytes. No event that is
within its limit has more, so whatever is refused for this can be sent in parts."""

TOO_MANY_CONTAINERS = f"more than {MAX_CONTAINERS} arrays and objects; send it in parts"

_SPACE = re.compile(r"[ \t\r\n]*")


class Form(Enum):
    """How items are written in a body."""

    JSON = auto()
    """One object, or an array of them."""
    LINES = auto()
    """One object per line."""
    CLOUD_EVENT = auto()
    """A CloudEvent in structured mode."""
    CLOUD_BATCH = auto()
    """An array of CloudEvents."""
    CLOUD_BINARY = auto()
    """A CloudEvent in binary mode: attributes in `ce-` headers, data in the body."""


FORMS = {
    "application/json": Form.JSON,
    "application/x-ndjson": Form.LINES,
    "application/ndjson": Form.LINES,
    "application/jsonl": Form.LINES,
    "application/x-jsonlines": Form.LINES,
    "application/cloudevents+json": Form.CLOUD_EVENT,
    "application/cloudevents-batch+json": Form.CLOUD_BATCH,
}


class Item(NamedTuple):
    """One thing in a body."""

    at: Position
    value: Any = None
    """Its JSON value."""
    problem: LineError | None = None
    """Why it has no content."""
    seq: int | None = None
    """The sequence number of a CloudEvent."""
    time_ms: int | None = None
    """The time of a CloudEvent."""

    def content(self) -> dict[str, Any]:
        """Its value. Raises LineError if it has no content or is not an object."""
        if self.problem is not None:
            raise self.problem
        if not isinstance(self.value, dict):
            raise LineError("", f"expected a JSON object, found {kind_of(self.value)}")
        return self.value


def form_of(content_type: str | None, headers: Mapping[str, str]) -> Form:
    """The form that the headers announce. Raises RefusedError (415)."""
    name, _, parameters = (content_type or "application/json").partition(";")
    name = name.strip().lower()
    charset = re.search(r'charset\s*=\s*"?([^";\s]+)', parameters, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8"):
        raise RefusedError(415, "the body has to be UTF-8", field="content-type")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(415, "compressed bodies are not read; send it plain", field="content-encoding")
    form = FORMS.get(name)
    if form is None:
        raise RefusedError(415, f"expected one of {', '.join(FORMS)}", field="content-type")
    return Form.CLOUD_BINARY if form is Form.JSON and "ce-specversion" in headers else form


def read_items(body: bytes, form: Form, headers: Mapping[str, str]) -> Iterator[Item]:
    """The items of a body, in order. Raises RefusedError if there are too many."""
    match form:
        case Form.LINES:
            return _lines(body)
        case Form.JSON:
            return _elements(body)
        case Form.CLOUD_EVENT | Form.CLOUD_BATCH:
            return (_opened(item) for item in _elements(body))
        case Form.CLOUD_BINARY:
            attributes = cloudevents.binary_attributes(headers)
            return (_with_attributes(item, attributes) for item in _elements(body))


def _lines(body: bytes) -> Iterator[Item]:
    _check_count(body.count(b"\n"))
    index = 0
    for number, text in enumerate(BytesIO(body), 1):
        stripped = text.strip(b" \t\r\n")
        if not stripped:
            continue
        yield _item(Position(index, number), stripped)
        index += 1


def _item(at: Position, text: bytes) -> Item:
    if _has_too_many_containers(text):
        return Item(at, problem=ItemError(TOO_LARGE, "", TOO_MANY_CONTAINERS))
    try:
        return Item(at, parse_unique(text))
    except ValueError as error:
        return Item(at, problem=_not_json(error))


def _elements(body: bytes) -> Iterator[Item]:
    """The elements of an array, or the one value that is no array."""
    if _has_too_many_containers(body):
        raise RefusedError(TOO_LARGE, TOO_MANY_CONTAINERS, field="body")
    try:
        value = parse_unique(body)
    except ValueError as error:
        yield from _salvaged(body, error)
        return
    if not isinstance(value, list):
        yield Item(Position(0), value)
        return
    _check_count(len(value))
    for index, element in enumerate(value):
        yield Item(Position(index), element)


def _salvaged(body: bytes, error: ValueError) -> Iterator[Item]:
    """The elements of an array with invalid ones (NaN, bad UTF-8, too deep, repeated keys), each by itself."""
    text = body.decode("utf-8", "surrogateescape")
    start = _space(text, 0)
    if text[start : start + 1] != "[":
        yield Item(Position(0, getattr(error, "lineno", None)), problem=_not_json(error))
        return
    spans: list[tuple[int, int]] = []
    try:
        for span in _spans(text, start + 1):
            spans.append(span)
            _check_count(len(spans))
    except (ValueError, RecursionError) as broken:
        position = Position(len(spans), getattr(broken, "lineno", None))
        reason = "nested too deep" if isinstance(broken, RecursionError) else str(broken)
        yield Item(position, problem=LineError("", f"the array breaks here, nothing of it was taken: {reason}"))
        return
    for index, (first, last) in enumerate(spans):
        yield _item(Position(index), text[first:last].encode("utf-8", "surrogateescape"))


def _spans(text: str, at: int) -> Iterator[tuple[int, int]]:
    """The positions of the elements of an array in its text. Raises ValueError if the array is broken."""
    decoder = json.JSONDecoder()
    at = _space(text, at)
    while True:
        _, end = decoder.raw_decode(text, at)
        yield at, end
        at = _space(text, end)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("expected a comma or the end of the array", text, at)
        at = _space(text, at + 1)
    if _space(text, at + 1) != len(text):
        raise json.JSONDecodeError("more text after the array", text, at + 1)


def _space(text: str, at: int) -> int:
    """The end of the white space that begins here."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _check_count(count: int) -> None:
    if count > MAX_ITEMS:
        raise RefusedError(TOO_LARGE, f"more than {MAX_ITEMS} items in one request; send several")


def _has_too_many_containers(text: bytes) -> bool:
    return len(text) > MAX_CONTAINERS and text.count(b"[") + text.count(b"{") > MAX_CONTAINERS


def _not_json(error: ValueError) -> LineError:
    if isinstance(error, RepeatedKeyError):
        return LineError(error.path, error.reason)
    return LineError("", f"not JSON: {error}")


def _opened(item: Item) -> Item:
    """The data of a CloudEvent in structured mode."""
    try:
        envelope = item.content()
        attributes = cloudevents.attributes(envelope)
        return item._replace(value=cloudevents.data(envelope), seq=attributes.seq, time_ms=attributes.time_ms)
    except LineError as error:
        return item._replace(problem=error)


def _with_attributes(item: Item, envelope: dict[str, Any]) -> Item:
    """The data of a CloudEvent in binary mode."""
    try:
        attributes = cloudevents.attributes(envelope)
        item.content()
        return item._replace(seq=attributes.seq, time_ms=attributes.time_ms)
    except LineError as error:
        return item._replace(problem=error)
