"""Writers and readers, in C and by fastavro, give what fastavro gives, byte by byte, and refuse what is not Avro alike."""

import os
import shutil
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Record
from schemas.codec import avro, fallback
from schemas.codec.avro import reader_of, writer_of
from schemas.codec.body import decode, encode, version_of
from schemas.codec.plan import AvroSchema, UnusualError, plan_of
from schemas.errors import DecodeError
from schemas.events import AgentEvent, AgentEvents
from schemas.versions import RECORDS
from tests.examples import shares
from tests.schemas.strategies import records

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
_LONG = st.integers(-(2**63), 2**63 - 1)
_PLAIN = {
    "string": _TEXT,
    "long": _LONG,
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "null": st.none(),
    "bytes": st.binary(max_size=80),
}


def _values(schema: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    if isinstance(schema, str):
        return _PLAIN[schema] if schema in _PLAIN else _values(named[schema.rpartition(".")[2]], named)
    if isinstance(schema, list):
        return st.one_of(*(_values(branch, named) for branch in schema))
    match schema["type"]:
        case "record":
            named[schema["name"].rpartition(".")[2]] = schema
            return st.fixed_dictionaries({field["name"]: _values(field["type"], named) for field in schema["fields"]})
        case "array":
            return st.lists(_values(schema["items"], named), max_size=3)
        case "map":
            return st.dictionaries(_TEXT, _values(schema["values"], named), max_size=3)
        case primitive:
            return _PLAIN[primitive]


def _as_object(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """The value with attributes where the schema has records: what a writer takes."""
    if isinstance(schema, str):
        return value if schema in _PLAIN else _as_object(value, named[schema.rpartition(".")[2]], named)
    if isinstance(schema, list):
        other = next(branch for branch in schema if branch != "null")
        return None if value is None else _as_object(value, other, named)
    match schema["type"]:
        case "record":
            fields = {field["name"]: field["type"] for field in schema["fields"]}
            return SimpleNamespace(**{name: _as_object(value[name], kind, named) for name, kind in fields.items()})
        case "array":
            return [_as_object(item, schema["items"], named) for item in value]
        case "map":
            return {key: _as_object(item, schema["values"], named) for key, item in value.items()}
    return value


def _ways(schema: AvroSchema) -> list[tuple[Any, Any]]:
    """A writer and a reader by fastavro and, where there are any, in C."""
    plan = plan_of(schema)
    found: list[tuple[Any, Any]] = [(fallback.Writer(schema, plan), fallback.Reader(schema, plan))]
    if avro.COMPILED:
        from schemas.codec import _avro

        found.append((_avro.Writer(plan), _avro.Reader(plan, UnusualError)))
    return found


def test_the_package_is_compiled_where_there_is_a_compiler() -> None:
    if shutil.which("cc") is None and not os.environ.get("CI"):
        pytest.skip("no C compiler")
    assert avro.COMPILED, "install the package again: make setup"


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_bytes_and_values_are_those_of_fastavro(name: str) -> None:
    version = version_of(RECORDS[name])
    named: dict[str, Any] = {}
    values = _values(version.schema, named)
    ways = _ways(version.schema)

    @given(values)
    def check(plain: dict[str, Any]) -> None:
        out = BytesIO()
        fastavro.schemaless_writer(out, version.parsed, plain, disable_tuple_notation=True)
        body = out.getvalue()
        for write, read in ways:
            assert write(_as_object(plain, version.schema, named)) == body
            assert read(body) == (plain, len(body))

    check()


def _outcome(read: Any, body: bytes) -> str | None:
    """The value that was read and where it ends; None for bytes that are refused."""
    try:
        return repr(read(body))
    except ValueError:
        return None


def _read_alike(schema: AvroSchema, body: bytes) -> None:
    """fastavro's words for wrong bytes are its own; it also reads numbers that take more bytes than they need."""
    (write, slow), (_, quick) = _ways(schema)
    found = _outcome(quick, body)
    if found is None and _outcome(slow, body) is not None:
        value, end = slow(body)
        assert len(write(_as_object(value, schema, _named(schema)))) != end
    else:
        assert _outcome(slow, body) == found


def _named(schema: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    _values(schema, named)
    return named


@pytest.mark.skipif(not avro.COMPILED, reason="the package was installed without a C compiler")
@pytest.mark.parametrize("name", sorted(RECORDS))
def test_both_ways_trip_over_the_same(name: str) -> None:
    schema = version_of(RECORDS[name]).schema

    @given(records(RECORDS[name]), st.data())
    @settings(max_examples=shares(0.8), deadline=None)
    def check(whole: Record, data: st.DataObject) -> None:
        body = bytearray(encode(whole))
        for _ in range(data.draw(st.integers(0, 3))):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
        damaged = bytes(body[: data.draw(st.integers(0, len(body)))])
        for odd in (bytes(body), damaged):
            _read_alike(schema, odd)

    check()


@pytest.mark.skipif(not avro.COMPILED, reason="the package was installed without a C compiler")
@given(st.binary(max_size=30))
def test_any_bytes_are_read_alike(data: bytes) -> None:
    _read_alike(version_of(AgentEvents).schema, data)


@pytest.mark.parametrize("value", [None, 1, "text", {"rollout_id": 1}, SimpleNamespace(rollout_id="\ud800")])
def test_what_is_no_record_is_not_written(value: object) -> None:
    for write, _ in _ways(version_of(AgentEvents).schema):
        with pytest.raises((AttributeError, TypeError, UnicodeEncodeError)):
            write(value)


class Odd(dict[str, int]):
    """A mapping with items of its own kind."""

    def __init__(self, pair: Any) -> None:
        super().__init__(a=1)
        self.pair = pair

    def items(self) -> Any:
        return [self.pair]


_MAP = {"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "map", "values": "long"}}]}


@pytest.mark.parametrize("value", [Odd(("a",)), Odd(1), Odd(("a", 1, 2)), None, 0])
def test_what_is_no_map_is_not_written(value: object) -> None:
    for write, _ in _ways(_MAP):
        with pytest.raises((AttributeError, TypeError, ValueError)):
            write(SimpleNamespace(x=value))


def test_of_two_faults_the_first_is_told() -> None:
    for _, read in _ways(_MAP):
        with pytest.raises(UnicodeDecodeError):
            read(b"\x02\x02\xff")


def test_many_values_fill_their_bytes() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}
    for _, read in _ways(schema):
        assert read.many(b"\x02\x04", 2) == [{"x": 1}, {"x": 2}]
        for data, count in ((b"\x02\x04", 1), (b"\x02", 2)):
            with pytest.raises(ValueError, match=r"left over|too early"):
                read.many(data, count)


_PAIR = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
}


def test_values_are_found_by_name_in_whatever_order_they_are_held() -> None:
    for write, _ in _ways(_PAIR):
        assert write(SimpleNamespace(id="a", n=3)) == write(SimpleNamespace(n=3, id="a")) == b"\x02a\x02\x06"
        assert write(SimpleNamespace(n=3, more=1, id="a")) == b"\x02a\x02\x06"
        with pytest.raises(AttributeError):
            write(SimpleNamespace(id="a"))


def test_the_values_of_a_tuple_stand_in_the_order_of_the_fields() -> None:
    for write, _ in _ways(_PAIR):
        assert write(("a", 3)) == write(SimpleNamespace(id="a", n=3))
        for short_or_long in (("a",), ("a", 3, 4)):
            with pytest.raises(ValueError, match="as many values"):
                write(short_or_long)


def test_many_are_written_one_after_the_other() -> None:
    for write, _ in _ways(_PAIR):
        values = [("a", 1), ("b", None), SimpleNamespace(id="c" * 5000, n=2)]
        assert write.many(values) == b"".join(map(write, values))
        assert write.many([]) == b""
        with pytest.raises((TypeError, AttributeError)):
            write.many([("a", 1), None])


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_not_written(number: int) -> None:
    for write, _ in _ways(_PAIR):
        with pytest.raises((OverflowError, ValueError)):
            write(("a", number))


def test_bytes_are_written_and_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "raw", "type": ["null", "bytes"]}]}
    body = writer_of(schema)(SimpleNamespace(raw=b"ab"))
    assert body == b"\x02\x04ab"
    assert reader_of(schema)(b"?" + body, 1) == ({"raw": b"ab"}, 5)


def test_blocks_with_a_size_are_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "xs", "type": {"type": "array", "items": "long"}}]}
    # Two blocks: one of two items that states its size in bytes, one of one item.
    assert reader_of(schema)(bytes([3, 4, 2, 4, 2, 6, 0])) == ({"xs": [1, 2, 3]}, 7)


_SLICE = AgentEvents(
    rollout_id="r", branch_index=1, first_seq=3,
    events=(AgentEvent(channel="text", event="final_answer", data='{"answer":"ü"}', timestamp_ms=5),) * 2,
)  # fmt: skip


def test_every_cut_and_most_changed_bytes_are_refused_or_read_as_something_valid() -> None:
    body = encode(_SLICE)
    for size in range(len(body)):
        with pytest.raises(DecodeError):
            decode(AgentEvents, body[:size])
    with pytest.raises(DecodeError, match="left over"):
        decode(AgentEvents, body + b"\0")
    for at in range(len(body)):
        for other in (0, 1, 0x7F, 0x80, 0xFF):
            changed = body[:at] + bytes([other]) + body[at + 1 :]
            try:
                found = decode(AgentEvents, changed)
            except DecodeError:
                continue
            assert encode(found) == changed  # another record, but exactly the one that the bytes say


def test_a_time_that_json_cannot_hold_is_refused() -> None:
    event = {"trace_id": "", "parent_trace_id": None, "channel": "c", "event": "e", "data": "{}", "timestamp_ms": 2**60}
    plain = _SLICE.plain() | {"events": [event]}
    out = BytesIO()
    fastavro.schemaless_writer(out, version_of(AgentEvents).parsed, plain, disable_tuple_notation=True)
    with pytest.raises(DecodeError, match="timestamp_ms"):
        decode(AgentEvents, out.getvalue())


def test_events_that_a_reader_made_are_like_any_other() -> None:
    [event, _] = decode(AgentEvents, encode(_SLICE)).events
    assert event == _SLICE.events[0]
    assert hash(event) == hash(_SLICE.events[0])
    assert event.model_dump() == _SLICE.events[0].model_dump()
    assert event.model_copy(update={"event": "error"}).event == "error"
