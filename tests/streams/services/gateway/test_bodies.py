"""Bodies of every form become items at their positions."""

import base64
from typing import Any

import orjson
import pytest

from agents.importers.line_error import LineError
from streams.services.gateway.bodies import MAX_ITEMS, Form, Item, form_of, read_items
from streams.services.gateway.problems import Position, RefusedError

EVENT = {"event": "step_start"}
CLOUD = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": EVENT}


def items(body: bytes, form: Form = Form.JSON, **headers: str) -> list[Item]:
    return list(read_items(body, form, {name.replace("_", "-"): value for name, value in headers.items()}))


def reason(item: Item) -> str:
    with pytest.raises(LineError) as caught:
        item.content()
    return str(caught.value)


def test_one_object_is_one_item() -> None:
    """An object stands for itself."""
    assert [item.content() for item in items(orjson.dumps(EVENT))] == [EVENT]


def test_lines_keep_their_numbers() -> None:
    """Blank lines count as lines, not as items; line ends of any kind are fine."""
    found = items(b'{"a":1}\r\n\n  \n{"a":2}', Form.LINES)
    assert [(item.at, item.value) for item in found] == [(Position(0, 1), {"a": 1}), (Position(1, 4), {"a": 2})]


@pytest.mark.parametrize(
    "bad",
    [b"{", b"nonsense", b'{"a":NaN}', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b"[" * 200 + b"]" * 200, b'{"a":1e999}'],
)
def test_a_bad_line_does_not_touch_the_next(bad: bytes) -> None:
    """It has its own problem; what is before and after is read."""
    found = items(b'{"a":1}\n' + bad + b'\n{"a":2}\n', Form.LINES)
    assert [item.value for item in (found[0], found[2])] == [{"a": 1}, {"a": 2}]
    assert reason(found[1]).startswith("not JSON")
    assert found[1].at == Position(1, 2)


@pytest.mark.parametrize(
    "bad", [b'{"a":NaN}', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b"[" * 200 + b"]" * 200, b'{"a":-Infinity}']
)
def test_an_array_with_a_bad_element_keeps_the_others(bad: bytes) -> None:
    """As long as its brackets and commas are right."""
    found = items(b' [{"a":1} ,\n' + bad + b' , {"a":2}] ')
    assert [item.value for item in (found[0], found[2])] == [{"a": 1}, {"a": 2}]
    assert reason(found[1]).startswith("not JSON")
    assert found[1].at.number == 1


@pytest.mark.parametrize(
    ("body", "at"),
    [(b'[{"a":1},{"a":', 1), (b'[{"a":1} {"a":2}]', 1), (b'[{"a":NaN}', 1), (b'[{"a":NaN}] x', 1), (b"[" * 100_000, 0)],
)
def test_a_broken_array_is_bad_where_it_breaks(body: bytes, at: int) -> None:
    """Nothing of it is taken: the sender's meaning is unknown."""
    (only,) = items(body)
    assert only.at.number == at
    assert "nothing of it was taken" in reason(only)


@pytest.mark.parametrize("value", [b"7", b'"text"', b"null", b"true"])
def test_what_is_no_object_is_said_to_be_so(value: bytes) -> None:
    """Also inside an array, at its place."""
    assert "expected a JSON object" in reason(items(value)[0])
    assert "expected a JSON object" in reason(items(b"[{}," + value + b"]")[1])


def test_a_body_of_too_many_items_is_refused_before_the_first() -> None:
    """An answer could not name them all."""
    with pytest.raises(RefusedError) as caught:
        items(b"x\n" * (MAX_ITEMS + 1), Form.LINES)
    assert caught.value.status == 413


def test_a_body_that_would_fill_the_memory_is_refused_before_it_is_parsed() -> None:
    """Millions of empty arrays are small as text only; as a line it is the line that is refused."""
    with pytest.raises(RefusedError) as caught:
        items(b"[" + b"[]," * 1_000_000 + b"[]]")
    assert caught.value.status == 413
    good, bad = items(b'{"a":1}\n[' + b"[]," * 1_000_000 + b"[]]", Form.LINES)
    assert good.value == {"a": 1}
    assert "send it in parts" in reason(bad)


def test_a_cloud_event_carries_an_item_a_seq_and_a_time() -> None:
    """The data is the item; `sequence` and `time` help where it says neither."""
    (item,) = items(orjson.dumps(CLOUD | {"sequence": "7", "time": "2026-01-01T00:00:00.250Z"}), Form.CLOUD_EVENT)
    assert (item.content(), item.seq, item.time_ms) == (EVENT, 7, 1767225600250)


def test_a_batch_of_cloud_events_is_read_one_by_one() -> None:
    """A bad envelope spoils only itself."""
    found = items(orjson.dumps([CLOUD, {"id": "1"}, CLOUD]), Form.CLOUD_BATCH)
    assert [found[0].content(), found[2].content()] == [EVENT, EVENT]
    assert reason(found[1]) == "specversion: expected 1.0"


def test_binary_data_of_a_cloud_event_is_base64() -> None:
    """`data_base64` is JSON, encoded."""
    envelope = {name: CLOUD[name] for name in ("specversion", "id", "source", "type")}
    (item,) = items(
        orjson.dumps(envelope | {"data_base64": base64.b64encode(orjson.dumps(EVENT)).decode()}), Form.CLOUD_EVENT
    )
    assert item.content() == EVENT


def test_a_binary_mode_cloud_event_has_its_attributes_in_headers() -> None:
    """They are percent-encoded."""
    headers = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/%C3%A4", "ce_type": "t", "ce_sequence": "3"}
    (item,) = items(orjson.dumps(EVENT), Form.CLOUD_BINARY, **headers)
    assert (item.content(), item.seq) == (EVENT, 3)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"id": ""}, "id"),
        ({"source": 5}, "source"),
        ({"type": None}, "type"),
        ({"data": None}, "data"),
        ({"data": None, "data_base64": "%%"}, "data_base64"),
        ({"datacontenttype": "text/xml"}, "datacontenttype"),
        ({"sequence": "minus one"}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"time": "yesterday"}, "time"),
        ({"time": 5}, "time"),
    ],
)
def test_a_bad_envelope_names_its_attribute(changes: dict[str, Any], field: str) -> None:
    """So that the sender can find it."""
    assert reason(items(orjson.dumps(CLOUD | changes), Form.CLOUD_EVENT)[0]).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        (None, Form.JSON),
        ("application/json; charset=utf-8", Form.JSON),
        ("Application/X-NDJSON", Form.LINES),
        ("application/cloudevents+json; charset=UTF-8", Form.CLOUD_EVENT),
        ("application/cloudevents-batch+json", Form.CLOUD_BATCH),
    ],
)
def test_the_content_type_decides_the_form(content_type: str | None, form: Form) -> None:
    """JSON when nothing is said."""
    assert form_of(content_type, {}) is form


@pytest.mark.parametrize(
    ("content_type", "headers"),
    [
        ("text/plain", {}),
        ("application/x-www-form-urlencoded", {}),
        ("application/json; charset=latin-1", {}),
        ("application/json", {"content-encoding": "gzip"}),
    ],
)
def test_other_types_are_refused(content_type: str, headers: dict[str, str]) -> None:
    """Also a form that a foreign page could send without asking."""
    with pytest.raises(RefusedError) as caught:
        form_of(content_type, headers)
    assert caught.value.status == 415


REPEATED = b'{"a":1,"b":{"c":1,"\\u0063":2}}'


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (Form.LINES, b'{"a":1}\n%s\n{"a":2}'),
        (Form.JSON, b'[{"a":1},%s,{"a":2}]'),
        (Form.JSON, b'[{"a":1},\n%s\n, {"a":2}]'),
    ],
)
def test_an_item_with_a_repeated_key_does_not_touch_its_neighbours(form: Form, body: bytes) -> None:
    """The problem names the key with the objects around it."""
    found = items(body.replace(b"%s", REPEATED), form)
    assert [item.value for item in (found[0], found[2])] == [{"a": 1}, {"a": 2}]
    assert reason(found[1]) == "b.c: the key stands twice in this object; send it once"
    assert found[1].at.number == 1


def test_one_object_with_a_repeated_key_is_refused() -> None:
    """As a body of its own."""
    (found,) = items(REPEATED)
    assert reason(found).startswith("b.c: the key stands twice")


def test_repeated_keys_of_cloud_events_are_refused() -> None:
    """In the envelope, in its data, and in data as base64."""
    encoded = orjson.dumps({**CLOUD, "data": None, "data_base64": base64.b64encode(REPEATED).decode()})
    twice = orjson.dumps(CLOUD).replace(b'"id"', b'"id":"0","id"')
    within = orjson.dumps(CLOUD).replace(orjson.dumps(EVENT), REPEATED)
    assert reason(*items(twice, Form.CLOUD_EVENT)).startswith("id: the key stands twice")
    assert reason(*items(within, Form.CLOUD_EVENT)).startswith("data.b.c: the key stands twice")
    assert "b.c: the key stands twice" in reason(*items(encoded, Form.CLOUD_EVENT))
    binary = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/a", "ce_type": "t"}
    assert reason(*items(REPEATED, Form.CLOUD_BINARY, **binary)).startswith("b.c: the key stands twice")
