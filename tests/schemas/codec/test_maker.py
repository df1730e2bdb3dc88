"""Records made without pydantic are those that the model makes, and what the model refuses is refused in its words."""

from contextlib import suppress
from io import BytesIO
from typing import Annotated, Any, Literal

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, field_validator

from schemas.base import MAX_EXACT, Count, Record
from schemas.closures import RolloutClosed
from schemas.codec.body import decode, decode_slice, encode, version_of
from schemas.codec.maker import Maker, unchecked
from schemas.errors import DecodeError
from schemas.events import AgentEvent, AgentEvents, fields_of, plain_events
from schemas.judging import Usage
from schemas.versions import RECORDS
from tests.examples import shares
from tests.schemas.strategies import records

ODD: dict[type, list[Any]] = {
    str: ["", "x" * 300, "another word"],
    int: [-1, 100_000, MAX_EXACT + 1, -(2**62), 2**62],
    float: [-0.5, 1.5, float("nan"), float("inf")],
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all strings and numbers of a plain value."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [found for at, item in enumerate(value) for found in leaves(item, (*path, at))]
    return [path] if type(value) in ODD else []


def listed(value: Any) -> Any:
    """The same plain value, with lists that can be changed."""
    if isinstance(value, dict):
        return {key: listed(item) for key, item in value.items()}
    return [listed(item) for item in value] if isinstance(value, (list, tuple)) else value


def spoilt(record: Record, data: st.DataObject) -> bytes:
    """The body of a record in which one value may be another of its Avro type."""
    plain = listed(record.plain())
    paths = leaves(plain)
    if paths and data.draw(st.booleans()):
        *way, last = data.draw(st.sampled_from(paths))
        holder = plain
        for step in way:
            holder = holder[step]
        holder[last] = data.draw(st.sampled_from(ODD[type(holder[last])]))
    out = BytesIO()
    fastavro.schemaless_writer(out, version_of(type(record)).parsed, plain, disable_tuple_notation=True)
    return out.getvalue()


def by_the_model(record: type[Record], body: bytes) -> Record | str:
    schema = version_of(record).schema
    try:
        return decode(
            record, body, foreign=schema
        )  # a writer's schema is resolved by fastavro and validated by the model
    except DecodeError as error:
        return str(error)


def outcome(decoded: Any, *words: Any) -> Record | str:
    try:
        found: Record = decoded(*words)
    except DecodeError as error:
        return str(error)
    return found


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@given(data=st.data())
@settings(max_examples=shares(0.4), deadline=None)
def test_what_is_read_without_the_model_is_what_it_would_say(record: type[Record], data: st.DataObject) -> None:
    body = spoilt(data.draw(records(record)), data)
    quick, careful = outcome(decode, record, body), by_the_model(record, body)
    assert quick == careful
    if isinstance(quick, Record):
        assert repr(quick) == repr(careful)  # tuples are tuples, down to the last part
        assert encode(quick) == body


@given(data=st.data())
@settings(max_examples=shares(2), deadline=None)
def test_a_slice_for_the_fold_says_the_same(data: st.DataObject) -> None:
    body = spoilt(data.draw(records(AgentEvents)), data)
    quick, careful = outcome(decode_slice, body), by_the_model(AgentEvents, body)
    if isinstance(careful, str):
        assert quick == careful
        return
    assert isinstance(quick, AgentEvents)
    assert isinstance(careful, AgentEvents)
    assert plain_events(quick) == tuple(fields_of(event) for event in careful.events)
    assert quick.model_copy(update={"events": careful.events}) == careful


def test_a_slice_is_read_the_same_whatever_was_read_before() -> None:
    """A reader remembers what the last event began with: neither a cut nor a changed slice may change the next one."""
    event = AgentEvent(
        trace_id="t", channel="thinking", event="thinking_delta", data="{}", timestamp_ms=1_768_000_000_000
    )
    whole = encode(AgentEvents(rollout_id="r", branch_index=1, events=(event, event)))
    for at in range(len(whole)):
        for odd in (whole[:at], *(whole[:at] + bytes([other]) + whole[at + 1 :] for other in (0, 1, 0x7F, 0x80, 0xFF))):
            with suppress(DecodeError):
                decode_slice(odd)
            assert plain_events(decode_slice(whole)) == (fields_of(event),) * 2, (at, odd)


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@given(data=st.data())
@settings(max_examples=shares(0.4), deadline=None)
def test_a_record_of_our_own_values_is_like_any_other(record: type[Record], data: st.DataObject) -> None:
    whole = data.draw(records(record))
    made = unchecked(record)(**vars(whole))
    assert made == whole
    assert repr(made) == repr(whole)
    assert made.model_dump_json() == whole.model_dump_json()
    assert made.model_copy() == whole


def test_defaults_are_the_models_own_and_never_shared() -> None:
    assert unchecked(Usage)(input_tokens=1) == Usage(input_tokens=1)
    make = unchecked(RolloutClosed)
    one, other = (
        make(closed_id="c", rollout_id="r", settled_id="s", cause="complete", decided_at_ms=1) for _ in range(2)
    )
    one.read_to["topic"] = 1
    assert (other.read_to, other.vote_ids) == ({}, ())


def test_makers_in_python_and_compiled_do_the_same() -> None:
    """A missing or unknown field is an error that names it, and names are the only way."""
    for make in (unchecked(Usage), _in_python(Usage)):
        assert make(usd=0.5, input_tokens=3) == Usage(input_tokens=3, usd=0.5)
        with pytest.raises(TypeError, match="Usage has no such field"):
            make(output=1)
        with pytest.raises(TypeError):
            make(1)
    for make in (unchecked(RolloutClosed), _in_python(RolloutClosed)):
        with pytest.raises(TypeError, match="RolloutClosed needs closed_id"):
            make(rollout_id="r")
        assert (
            make(closed_id="c", rollout_id="r", settled_id="s", cause="complete", decided_at_ms=1, read_to=None).read_to
            == {}
        )


def _in_python(record: type[Record]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("schemas.codec.maker._maker", Maker)
        return unchecked(record)


def test_a_limit_that_is_not_tested_is_no_limit_that_passes() -> None:
    """A new kind of limit on a field is an error at once; words of two lists are not mixed up."""

    class Odd(Record):
        count: Annotated[int, Field(gt=0)]

    with pytest.raises(AssertionError, match="gt"):
        decode(Odd, b"\x02")

    class Words(Record):
        one: tuple[Literal["a"], ...]
        other: tuple[Literal["b"], ...]

    assert decode(Words, encode(Words(one=("a",), other=("b",)))) == Words(one=("a",), other=("b",))
    with pytest.raises(DecodeError, match="one"):
        decode(Words, b"\x02\x02b\0\x02\x02b\0")


def test_of_several_limits_the_narrowest_holds() -> None:
    class Narrow(Record):
        count: Annotated[Count, Field(le=10)]

    assert decode(Narrow, b"\x14") == Narrow(count=10)
    with pytest.raises(DecodeError, match="count"):
        decode(Narrow, b"\x16")


def test_limits_of_other_kinds_are_told_at_once() -> None:
    class Short(Record):
        names: Annotated[tuple[str, ...], Field(max_length=1)]

    class Asked(Record):
        name: str

        @field_validator("name")
        @classmethod
        def odd(cls, name: str) -> str:
            return name

    for record in (Short, Asked):
        with pytest.raises(AssertionError):
            decode(record, b"\0")


def test_what_a_map_holds_is_limited_too() -> None:
    class Limited(Record):
        counts: dict[str, Annotated[int, Field(ge=0)]]

    with pytest.raises(DecodeError, match="counts"):
        decode(Limited, b"\x02\x02a\x01\0")
