"""DSSE envelopes: good only when every rule holds, and each broken rule is named."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from agents.evidence.canonical import canonical_bytes, digest
from agents.evidence.dsse import PAYLOAD_TYPE, check_envelope, make_envelope, pae, statement, with_envelope
from agents.evidence.signing import SigningKey, sign_record
from tests.agents.evidence.records import branch_record
from tests.conformance import conformance

Json = dict[str, Any]


def enveloped(
    record: Json, said: Json, key: SigningKey, payload_type: str = PAYLOAD_TYPE, *, legacy: bool = False
) -> Json:
    """Sign any statement, as an emitter would that breaks a rule."""
    payload = json.dumps(said).encode()
    text = base64.b64encode(payload)
    signature = key.sign(pae(payload_type, text if legacy else payload))
    envelope = {
        "payloadType": payload_type,
        "payload": text.decode(),
        "signatures": [{"keyid": key.key_id, "sig": signature}],
    }
    return {**record, "dsse_envelope": envelope}


@pytest.fixture
def record() -> Json:
    return {**branch_record("r", 0), "prev_record_hash": None}


def test_the_encoding_is_the_one_of_the_standard() -> None:
    """The example of the DSSE protocol document comes out the same."""
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_an_exported_envelope_is_good(record: Json, key: SigningKey, keys: dict[str, bytes]) -> None:
    """Our own envelope verifies, with and without an inline signature beside it."""
    assert check_envelope(with_envelope(record, key), keys) == ("valid", [])
    assert check_envelope(with_envelope(sign_record(record, key), key), keys) == ("valid", [])


def test_the_statement_names_run_and_digest(record: Json) -> None:
    """The subject is the run, and its digest that of the predicate's canonical bytes."""
    said = statement(record)
    assert said["subject"] == [
        {"name": "urn:wasmagent:run:r/b0/a0", "digest": {"sha256": digest(canonical_bytes(record))}}
    ]
    assert said["predicate"] == record


def test_a_statement_in_any_key_order_is_good(record: Json, key: SigningKey, keys: dict[str, bytes]) -> None:
    """The payload's own bytes are signed; they need not be canonical."""
    said = dict(reversed(statement(record).items()))
    assert check_envelope(enveloped(record, said, key), keys) == ("valid", [])


def set_to(*path: str | int, value: object) -> Callable[[Any], None]:
    def change(said: Any) -> None:
        for step in path[:-1]:
            said = said[step]
        said[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_to("_type", value="https://example.com/Statement/v2"), "_type"),
        (set_to("predicateType", value="https://wasmagent.dev/attestations/aep/v0.9"), "predicateType"),
        (set_to("subject", value=[]), "exactly one subject"),
        (set_to("subject", value=None), "exactly one subject"),
        (set_to("subject", 0, "name", value="urn:wasmagent:run:other"), "the subject is"),
        (set_to("subject", 0, "name", value=None), "the subject is None"),
        (set_to("subject", 0, "digest", "sha256", value="0" * 64), "sha256"),
        (set_to("subject", 0, "digest", value=None), "sha256"),
        (set_to("predicate", "model_id", value="other"), "the predicate is not the record (model_id)"),
        (set_to("predicate", value=None), "the predicate is not the record"),
        (set_to("predicate", "big", value=2**60), "beyond 2^53"),
    ],
)
def test_a_signed_statement_that_breaks_a_rule_is_invalid(
    record: Json, key: SigningKey, keys: dict[str, bytes], change: Callable[[Json], None], reason: str
) -> None:
    """An authentic signature does not make up for a wrong statement."""
    said = json.loads(json.dumps(statement(record)))
    change(said)
    state, reasons = check_envelope(enveloped(record, said, key), keys)
    assert state == "invalid"
    assert any(reason in given for given in reasons)


def test_another_payload_type_is_invalid(record: Json, key: SigningKey, keys: dict[str, bytes]) -> None:
    """Even signed, it is not an in-toto attestation."""
    altered = enveloped(record, statement(record), key, "application/json")
    assert check_envelope(altered, keys) == (
        "invalid",
        ["dsse: payloadType is 'application/json', not 'application/vnd.in-toto+json'"],
    )


@pytest.mark.parametrize("signatures", [[], None, "x", ["x"], [{}, {}]])
def test_there_must_be_exactly_one_signature(
    record: Json, key: SigningKey, keys: dict[str, bytes], signatures: object
) -> None:
    """None, two, or something else in its place are all refused."""
    envelope = make_envelope(record, key) | {"signatures": signatures}
    verdict = check_envelope({**record, "dsse_envelope": envelope}, keys)
    assert verdict == ("invalid", ["dsse: there must be exactly one signature"])


def test_two_good_signatures_are_still_invalid(record: Json, key: SigningKey, keys: dict[str, bytes]) -> None:
    """The joint meaning of several signatures is undefined, so they are not accepted."""
    envelope = make_envelope(record, key)
    envelope["signatures"] *= 2
    assert check_envelope({**record, "dsse_envelope": envelope}, keys).state == "invalid"


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        ("text", "must be an object"),
        ({}, "the payload is not base64"),
        ({"payload": "e30"}, "the payload is not base64"),
        ({"payload": "W10="}, "not an in-toto Statement"),
        ({"payload": "eA=="}, "not JSON"),
    ],
)
def test_an_envelope_of_another_shape_is_invalid(
    record: Json, keys: dict[str, bytes], envelope: object, reason: str
) -> None:
    """Anything may stand where an envelope should; it is named, and nothing raises."""
    state, reasons = check_envelope({**record, "dsse_envelope": envelope}, keys)
    assert state == "invalid"
    assert any(reason in given for given in reasons)


def test_a_changed_record_no_longer_matches_its_envelope(record: Json, key: SigningKey, keys: dict[str, bytes]) -> None:
    """The envelope still verifies by itself; the record around it does not."""
    wrapped = with_envelope(record, key) | {"run_id": "r/b1/a0"}
    assert check_envelope(wrapped, keys) == (
        "invalid",
        [
            "dsse: the subject is 'urn:wasmagent:run:r/b0/a0', not 'urn:wasmagent:run:r/b1/a0'",
            "dsse: the predicate is not the record (run_id)",
        ],
    )


def test_an_envelope_by_an_unknown_key_is_invalid(record: Json, key: SigningKey) -> None:
    """The signer must be known."""
    assert check_envelope(with_envelope(record, key), {}) == ("invalid", ["dsse: the key 'key-test' is unknown"])


def test_a_signature_over_the_base64_text_is_legacy(record: Json, key: SigningKey, keys: dict[str, bytes]) -> None:
    """It is recognised, named, and not good."""
    state, reasons = check_envelope(enveloped(record, statement(record), key, legacy=True), keys)
    assert state == "legacy"
    assert reasons == ["dsse: the signature covers the base64 text, not the decoded payload (legacy)"]


def test_a_legacy_envelope_around_a_changed_record_is_invalid(
    record: Json, key: SigningKey, keys: dict[str, bytes]
) -> None:
    """Only the version may differ, as those emitters left it; anything else is tampering."""
    wrapped = enveloped(record, statement(record), key, legacy=True)
    assert check_envelope(wrapped | {"schema_version": "aep/v0.4"}, keys).state == "legacy"
    assert check_envelope(wrapped | {"model_id": "other"}, keys).state == "invalid"


def test_the_published_envelope_is_legacy() -> None:
    """The vector signed the base64 text, and its predicate kept an older version; both are said."""
    vectors = json.loads(conformance("aep", "aep-vectors.json").read_bytes())
    state, reasons = check_envelope(vectors["dsse"], {"local-dev-key-01": bytes.fromhex(vectors["pub"])})
    assert state == "legacy"
    assert reasons == [
        "dsse: the predicate is not the record (schema_version)",
        "dsse: the signature covers the base64 text, not the decoded payload (legacy)",
    ]
