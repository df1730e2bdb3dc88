"""Signatures and links: what they cover, and that the published vectors come out the same."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agents.evidence.canonical import digest
from agents.evidence.signing import (
    SigningKey,
    chain,
    decode_base64,
    record_hash,
    sign_chain,
    sign_record,
    signature_faults,
    signed_bytes,
)
from tests.agents.evidence.records import branch_record
from tests.conformance import conformance


def vectors() -> dict[str, Any]:
    vectors: dict[str, Any] = json.loads(conformance("aep", "aep-vectors.json").read_bytes())
    return vectors


def shared_record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(conformance("aep", "aep-shared.jsonl").read_bytes())
    return record


def test_the_shared_record_has_the_published_canonical_bytes() -> None:
    """1070 bytes with the digest that the conformance notes give."""
    message = signed_bytes(shared_record())
    assert len(message) == 1070
    assert digest(message) == "2387dd0177d30363da2c5eb38b7f749a67cc7311695caafef65d805e59aca540"


def test_the_shared_record_verifies_with_its_published_key() -> None:
    """The inline signature of another implementation is good here."""
    record = shared_record()
    published = json.loads(conformance("aep", "aep-shared.pubkey.json").read_bytes())
    keys = {published["key_id"]: bytes.fromhex(published["public_key_hex"])}
    assert signature_faults(record["signature"], signed_bytes(record), keys) == []


def test_the_shared_record_signs_to_the_same_signature_again() -> None:
    """The key of the all-zero seed gives the published signature, bit for bit."""
    record = shared_record()
    zero = SigningKey(record["signature"]["key_id"], Ed25519PrivateKey.from_private_bytes(bytes(32)))
    assert sign_record(record, zero) == record


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("r1", "eb7f3bbc5660208494b414cbcaf61b393bd3fa4f9322e1bc2ab00579c2bea744"),
        ("r2", "752900e929d7190c04d4bd71a6c9e53d136d8d7bf65393b9d41164631ba66a82"),
    ],
)
def test_the_vectors_hash_and_sign_to_their_published_values(name: str, expected: str) -> None:
    """Hash, verification and a new signature all agree with the vector."""
    given = vectors()
    record = given[name]
    key = SigningKey("local-dev-key-01", Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given["seed_hex"])))
    assert key.public.hex() == given["pub"]
    assert record_hash(record) == expected
    assert signature_faults(record["signature"], signed_bytes(record), {key.key_id: key.public}) == []
    assert sign_record(record, key) == record


def test_chaining_the_vectors_links_them_as_published() -> None:
    """Linking r1 and r2 anew gives both records again."""
    given = vectors()
    key = SigningKey("local-dev-key-01", Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given["seed_hex"])))
    assert list(sign_chain([given["r1"], given["r2"]], key)) == [given["r1"], given["r2"]]


def test_a_chain_names_the_record_before(key: SigningKey) -> None:
    """The first record names nothing, or what it is told to follow; each later one the hash of its predecessor."""
    first, second = chain([branch_record("r", 0), branch_record("r", 1)])
    assert first["prev_record_hash"] is None
    assert second["prev_record_hash"] == record_hash(first) == record_hash(sign_record(first, key))
    (continued,) = chain([branch_record("r", 2)], previous=record_hash(second))
    assert continued["prev_record_hash"] == record_hash(second)


def test_signing_again_replaces_signature_and_envelope(key: SigningKey) -> None:
    """Nothing stale stays beside a new signature."""
    stale = {**branch_record("r", 0), "signature": {"alg": "none"}, "dsse_envelope": {"payload": ""}}
    assert sign_record(stale, key) == sign_record(branch_record("r", 0), key)


def test_a_float_and_an_integer_of_one_value_are_signed_alike(key: SigningKey) -> None:
    """A score of 1.0 is the number 1, as it is in JavaScript."""
    assert sign_record({"score": 1.0}, key)["signature"] == sign_record({"score": 1}, key)["signature"]


def test_the_key_does_not_show_its_private_half(key: SigningKey) -> None:
    """Neither seed nor key object is in what a log would print."""
    assert repr(key) == "SigningKey(key_id='key-test')"


def test_base64_counts_only_in_its_normal_form() -> None:
    """Spare bits, missing padding, line breaks and the URL alphabet are all refused."""
    text = base64.b64encode(b"\xfb\xef\xff\x01").decode()
    assert text == "++//AQ=="
    assert decode_base64(text) == b"\xfb\xef\xff\x01"
    for altered in ("++//AR==", "++//AQ", "++//\nAQ==", "--__AQ==", "++//AQ== ", "++//AQ=é", "", None, 7):
        assert decode_base64(altered) in (None, b"")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"alg": "ED25519"}, "the algorithm is 'ED25519'"),
        ({"alg": "none"}, "the algorithm is 'none'"),
        ({"alg": None}, "the algorithm is None"),
        ({"key_id": "someone"}, "the key 'someone' is unknown"),
        ({"key_id": ["k"]}, "is unknown"),
        ({"sig": "AAAA"}, "does not match"),
        ({"sig": "no base64"}, "not base64"),
        ({"sig": 5}, "not base64"),
    ],
)
def test_a_changed_signature_says_what_is_wrong(
    key: SigningKey, keys: dict[str, bytes], change: dict[str, Any], reason: str
) -> None:
    """Wrong algorithm, unknown key, other bytes: each has its own reason."""
    record = sign_record(branch_record("r", 0), key)
    (fault,) = signature_faults(record["signature"] | change, signed_bytes(record), keys)
    assert reason in fault


def test_a_signature_that_is_no_object_is_a_fault(keys: dict[str, bytes]) -> None:
    """A text in its place is not looked into."""
    assert signature_faults("sig", b"", keys) == ["signature: must be an object with alg, key_id and sig"]
