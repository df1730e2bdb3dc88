"""Records and their Avro: every record survives the wire, and nothing else is taken for one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.base import Record
from schemas.closures import RolloutClosed
from schemas.codec import body as avro_body
from schemas.errors import DecodeError
from schemas.events import AgentEvents
from schemas.versions import RECORDS
from streams.log.topics import BY_RECORD
from streams.log.wire import Codec, body_of
from tests.examples import shares
from tests.schemas.strategies import records

CODEC = Codec()
EVERY = pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())


@EVERY
@given(data=st.data())
@settings(max_examples=shares(0.5), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_record_survives_the_wire(record: type[Record], data: st.DataObject) -> None:
    """An encoded record is decoded to an equal record, with equal bytes the second time."""
    original = data.draw(records(record))
    value = CODEC.encode(original)
    read = CODEC.decode(BY_RECORD[record], value)
    assert read == original
    assert CODEC.encode(read) == value


@EVERY
@given(data=st.data())
@settings(max_examples=shares(0.2), deadline=None, suppress_health_check=list(HealthCheck))
def test_truncated_bytes_are_a_typed_error(record: type[Record], data: st.DataObject) -> None:
    """No prefix of a record's bytes is taken for a record."""
    value = CODEC.encode(data.draw(records(record)))
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(DecodeError):
        CODEC.decode(BY_RECORD[record], value[:cut])


@given(junk=st.binary(max_size=200))
@settings(max_examples=shares(4), deadline=None)
def test_foreign_bytes_are_a_typed_error(junk: bytes) -> None:
    """Bytes of another writer are refused, never half read."""
    with pytest.raises(DecodeError):
        CODEC.decode(BY_RECORD[AgentEvents], junk)


def test_trailing_bytes_are_refused() -> None:
    """A record followed by anything is not that record."""
    value = CODEC.encode(AgentEvents(rollout_id="r", branch_index=0))
    with pytest.raises(DecodeError, match="left over"):
        CODEC.decode(BY_RECORD[AgentEvents], value + b"x")


def test_a_record_of_another_topic_is_refused() -> None:
    """A closure in the events topic is named as what it is."""
    from schemas.closures import Closure

    value = CODEC.encode(
        Closure(closed=RolloutClosed(closed_id="c", rollout_id="r", settled_id="s", cause="complete", decided_at_ms=1))
    )
    with pytest.raises(DecodeError, match="the bytes are a Closure"):
        CODEC.decode(BY_RECORD[AgentEvents], value)


def test_every_field_says_what_it_is() -> None:
    """Every field of every record has a description, in the model and in the Avro."""

    def silent(schema: object, path: str) -> list[str]:
        if isinstance(schema, list):
            return [found for each in schema for found in silent(each, path)]
        if not isinstance(schema, dict):
            return []
        found = [f"{path}.{field['name']}" for field in schema.get("fields", ()) if not field.get("doc")]
        for field in schema.get("fields", ()):
            found += silent(field["type"], f"{path}.{field['name']}")
        return found + silent(schema.get("items"), path)

    missing = [
        name for record in RECORDS.values() for name in silent(avro_body.version_of(record).schema, record.__name__)
    ]
    assert missing == []


def test_records_are_frozen_and_closed() -> None:
    """A record cannot be changed, and takes no field that its model does not know."""
    record = AgentEvents(rollout_id="r", branch_index=0)
    with pytest.raises(ValueError, match="frozen"):
        record.branch_index = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match="Extra inputs"):
        AgentEvents.model_validate({"rollout_id": "r", "branch_index": 0, "more": 1})


def test_a_content_id_depends_on_everything_but_itself() -> None:
    """The same content has the same id; any other content has another."""
    one = RolloutClosed(closed_id="x", rollout_id="r", settled_id="s", cause="complete", decided_at_ms=1)
    from schemas.closures import Closure

    assert body_of(CODEC.encode(Closure(closed=one))) == avro_body.encode(Closure(closed=one))
