"""Avro bodies with content ids."""

from hashlib import sha256

from hypothesis import given

from schemas.branches import BranchRecord
from schemas.codec.body import BLANK, Bodies, encode, with_content_id
from schemas.emission import NEWEST_VERSION
from tests.schemas.strategies import records


@given(records(BranchRecord))
def test_an_id_is_a_function_of_everything_else_and_stands_in_its_place(record: BranchRecord) -> None:
    bodies = Bodies(NEWEST_VERSION)
    found = with_content_id(record, bodies=bodies)
    blank = record.model_copy(update={"record_id": BLANK})
    number = bodies.numbers["BranchRecord"]
    assert found.record_id == sha256(b"BranchRecord\0" + encode(blank, number)).hexdigest()[:32]
    assert bodies == {found.record_id: encode(found, number)}
