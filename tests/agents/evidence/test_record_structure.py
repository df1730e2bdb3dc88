"""The shape of AEP records, held against the published schema and fixtures."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agents.evidence.structure import closing_of, semantic_faults, structural_faults
from tests.conformance import conformance

Json = dict[str, Any]
MINIMAL: Json = {"schema_version": "aep/v0.5", "run_id": "r", "created_at_ms": 1}
FLOOR, OBSERVED = "run_attribution_backing_floor", "run_attribution_backing_observed"


def fixture(kind: str, name: str) -> Json:
    record: Json = json.loads(conformance("protocol", "fixtures", kind, "aep-record", name).read_bytes())
    return record


def published_schema() -> Draft202012Validator:
    schema = conformance("protocol", "schemas", "aep", "aep-record.schema.json").read_bytes()
    return Draft202012Validator(json.loads(schema))


@pytest.mark.parametrize("name", ["example.json", "v0.3-fields.json"])
def test_valid_fixtures_are_accepted(name: str) -> None:
    """A record that the protocol calls valid has no fault in either layer."""
    assert structural_faults(fixture("valid", name)) == []
    assert semantic_faults(fixture("valid", name)) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("bad-argument-drift.json", "argument_drift: must be an object"),
        ("bad-recording-mode.json", "recording_mode: must be one of"),
        ("bad-run-side-effect.json", "run_side_effect_class_max: must be one of"),
        ("bad-side-effect-class.json", "side_effect_class: must be one of"),
        ("bad-subject-id.json", "subject_id: must be a string"),
        ("bad-user-id.json", "user_id: must be a string"),
        ("example.json", "run_id: is missing"),
    ],
)
def test_invalid_fixtures_are_rejected_with_the_field(name: str, fault: str) -> None:
    """A record that the protocol calls invalid is rejected, and the fault names the field."""
    assert structural_faults(fixture("invalid", name))[0].startswith(fault)


def test_no_fixture_is_forgotten() -> None:
    """The lists above are all the fixtures there are."""
    valid = conformance("protocol", "fixtures", "valid", "aep-record")
    invalid = conformance("protocol", "fixtures", "invalid", "aep-record")
    assert (len(list(valid.iterdir())), len(list(invalid.iterdir()))) == (2, 7)


def test_the_signed_vectors_are_well_formed() -> None:
    """All published records pass both layers, extra properties included."""
    vectors = json.loads(conformance("aep", "aep-vectors.json").read_bytes())
    shared = json.loads(conformance("aep", "aep-shared.jsonl").read_bytes())
    for record in (vectors["r1"], vectors["r2"], vectors["dsse"], shared):
        assert structural_faults(record) == []
        assert semantic_faults(record) == []


def full_record() -> Json:
    """Return a record that uses every field the published schema names."""

    def example(schema: Json) -> Any:
        if "enum" in schema:
            return schema["enum"][-1]
        kind = schema["type"]
        if kind == "object":
            return {name: example(inner) for name, inner in schema.get("properties", {}).items()}
        plain = {"string": "x", "number": 1.5, "boolean": True}
        return [example(schema["items"])] if kind == "array" else plain[kind if isinstance(kind, str) else kind[0]]

    record: Json = example(published_schema().schema)
    return record


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, child in inner for place in places(child, (*path, name)))]


@given(st.data())
def test_verdicts_agree_with_the_published_schema(data: st.DataObject) -> None:
    """Any field replaced or removed anywhere is judged as the JSON Schema judges it."""
    record = full_record()
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(places(record)[1:]))
        holder: Any = record
        for step in path:
            holder = holder[step]
        junk = st.sampled_from([None, True, 0, 1.0, -1.5, "", "read", "allow", "full", "aep/v0.1", [], [1], ["x"], {}])
        if data.draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = data.draw(junk)
    assert (structural_faults(record) == []) == published_schema().is_valid(record)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_nothing_makes_the_rules_raise(junk: object) -> None:
    """For any value in the place of a record or a field, the answer is a list of faults."""
    fields = [*full_record(), "dsse_envelope", FLOOR, OBSERVED, "attribution_backing", "authorization_evidence_count"]
    for record in (
        junk,
        {**MINIMAL, "run_id": "r/ranking", "closing": junk},
        {**MINIMAL, **dict.fromkeys(fields, junk)},
    ):
        structural_faults(record)
        semantic_faults(record)


@pytest.mark.parametrize("version", ["aep/v0.1", "aep/v0.2", "aep/v0.3", "aep/v0.4", "aep/v0.5"])
def test_all_known_versions_are_read(version: str) -> None:
    """The required fields are enough in every version."""
    assert structural_faults({**MINIMAL, "schema_version": version}) == []


def test_extensions_are_accepted() -> None:
    """Members that no version names are free, at every level."""
    action = {"action_id": "a", "tool_name": "t", "state_changing": False, "timestamp_ms": 1, "extra": {"any": 1}}
    assert structural_faults({**MINIMAL, "actions": [action], "my_field": [None]}) == []


def test_a_fault_says_where_it_is() -> None:
    """The path leads to the value."""
    record = {**MINIMAL, "actions": [{"action_id": "a", "tool_name": 5, "state_changing": 1, "timestamp_ms": True}]}
    assert structural_faults(record) == [
        "actions[0].tool_name: must be a string",
        "actions[0].state_changing: must be true or false",
        "actions[0].timestamp_ms: must be a number",
    ]


def test_what_is_no_object_is_no_record() -> None:
    """A list or a text gets a fault in both layers."""
    assert structural_faults([]) == ["the record must be an object"]
    assert semantic_faults("x") == ["the record is not an object"]


@pytest.mark.parametrize(
    "record", [{"prev_record_hash": 5}, {"dsse_envelope": "x"}, {"dsse_envelope": {"payload": "x"}}]
)
def test_links_and_envelopes_have_a_shape(record: Json) -> None:
    """The two fields that the schema leaves open are checked here."""
    assert structural_faults(MINIMAL | record) != []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"attribution_backing": "unknown"},
        {FLOOR: "operator_asserted", OBSERVED: ["operator_asserted"]},
        {FLOOR: "unknown", OBSERVED: ["principal_key_signed", "unknown", "qualified_signature"]},
        {FLOOR: "operator_asserted", OBSERVED: ["qualified_signature", "operator_asserted"]},
        {"authorization_evidence_count": 0},
        {"authorization_evidence_count": 2.0},
    ],
)
def test_honest_attribution_is_valid(fields: Json) -> None:
    """The floor is the weakest of the grades observed."""
    assert semantic_faults(MINIMAL | fields) == []
    assert structural_faults(MINIMAL | fields) == []


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({FLOOR: "operator_asserted"}, "must come together"),
        ({OBSERVED: ["operator_asserted"]}, "must come together"),
        ({OBSERVED: []}, "at least one grade"),
        ({FLOOR: "operator_asserted", OBSERVED: []}, "at least one grade"),
        ({FLOOR: "operator_asserted", OBSERVED: "operator_asserted"}, "at least one grade"),
        ({FLOOR: "operator_asserted", OBSERVED: ["operator_asserted", "operator_asserted"]}, "lists a grade twice"),
        (
            {FLOOR: "qualified_signature", OBSERVED: ["operator_asserted", "qualified_signature"]},
            "the weakest observed",
        ),
        ({FLOOR: "unknown", OBSERVED: ["operator_asserted"]}, "the weakest observed"),
        ({FLOOR: "operator_asserted", OBSERVED: ["operator_asserted", "strong"]}, "not an attribution grade"),
        ({"attribution_backing": "self_asserted"}, "not an attribution grade"),
        ({"authorization_evidence_count": -1}, "non-negative integer"),
        ({"authorization_evidence_count": 1.5}, "non-negative integer"),
        ({"authorization_evidence_count": True}, "non-negative integer"),
        ({"authorization_evidence_count": float("inf")}, "non-negative integer"),
    ],
)
def test_attribution_that_cannot_be_true_is_invalid(fields: Json, fault: str) -> None:
    """Half a pair, an empty or repeated list, a floor that rounds up, an impossible count."""
    assert any(fault in given for given in semantic_faults(MINIMAL | fields))


def with_classes(stated: str, *classes: str | None) -> Json:
    return {
        **MINIMAL,
        "run_side_effect_class_max": stated,
        "actions": [{"side_effect_class": name} for name in classes],
    }


@pytest.mark.parametrize(
    "record",
    [
        with_classes("read"),
        with_classes("mutate-external", "read", "mutate-external"),
        with_classes("unknown", "network-egress", "unknown"),
        with_classes("network-egress", "read"),
        with_classes("read", None),
    ],
)
def test_a_maximum_that_covers_all_actions_is_valid(record: Json) -> None:
    """It may be higher than what is listed: not every action need be."""
    assert semantic_faults(record) == []


@pytest.mark.parametrize(
    "record",
    [
        with_classes("read", "mutate-local"),
        with_classes("network-egress", "read", "unknown"),
        with_classes("mutate-local", "mutate-external"),
        {**with_classes("read"), "side_effect_class": "mutate-local"},
    ],
)
def test_a_maximum_below_an_action_is_invalid(record: Json) -> None:
    """read < mutate-local < mutate-external < network-egress < unknown."""
    assert "run_side_effect_class_max" in semantic_faults(record)[0]


def test_repeated_action_ids_are_accepted() -> None:
    """Agents do repeat call ids; a record that says so is not wrong."""
    action = {"action_id": "a", "tool_name": "t", "state_changing": False, "timestamp_ms": 1}
    assert semantic_faults({**MINIMAL, "actions": [action, action]}) == []


def test_only_the_record_of_a_ranking_closes_a_rollout() -> None:
    """The run_id and the object must both be there."""
    closing = {"records": 0, "head": None}
    assert closing_of({"run_id": "r/ranking", "closing": closing}) == closing
    assert closing_of({"run_id": "r/b0/a0", "closing": closing}) is None
    assert closing_of({"run_id": "r/ranking"}) is None


@pytest.mark.parametrize(
    ("closing", "fault"),
    [
        ({"records": -1, "head": None}, "closing.records"),
        ({"head": None}, "closing.records"),
        ({"records": 1, "head": "0" * 64}, "closing.head"),
    ],
)
def test_a_closing_that_contradicts_its_record_is_invalid(closing: Json, fault: str) -> None:
    """The head it states is the record it names, and a count is a count."""
    assert fault in semantic_faults({**MINIMAL, "run_id": "r/ranking", "prev_record_hash": None, "closing": closing})[0]
