"""Verifying whole files: nothing that was changed, removed, moved or forged passes."""

import json
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agents.evidence.chain import ChainState
from agents.evidence.dsse import with_envelope
from agents.evidence.signing import SigningKey, sign_chain, sign_record
from agents.evidence.verification import Authenticity, Evidence, Report, Verifier, read_lines, verify_records
from tests.agents.evidence.records import Rollout, branch_record
from tests.conformance import conformance

Json = dict[str, Any]
Keys = dict[str, bytes]


def lines(records: list[Json]) -> bytes:
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def verify(text: bytes, keys: Keys, **options: bool) -> Report:
    return verify_records(read_lines(text.splitlines(keepends=True), "aep.jsonl"), keys, **options)


def single(record: Json, keys: Keys, **options: bool) -> Report:
    return verify_records([Evidence("1", record)], keys, **options)


def alone(key: SigningKey) -> Json:
    """Return a signed record that belongs to no rollout."""
    return sign_record({**branch_record("r", 0), "run_id": "run-1", "prev_record_hash": None}, key)


def test_a_signed_rollout_is_ok(rollout: Rollout, keys: Keys) -> None:
    """Every layer holds for every record, and the chain is intact."""
    report = verify(lines(rollout()), keys)
    assert report.ok
    assert report.chain_state is ChainState.INTACT
    assert {verdict.authenticity for verdict in report.records} == {Authenticity.INLINE_VALID}


@pytest.mark.parametrize("flip", [0x01, 0x20])
def test_a_changed_byte_anywhere_is_found(rollout: Rollout, keys: Keys, flip: int) -> None:
    """Each byte of the file in turn: content, signature, key id, names, separators, line ends."""
    text = lines(rollout(branches=1))
    assert verify(text, keys).ok
    for index in range(len(text)):
        changed = bytearray(text)
        changed[index] ^= flip
        assert not verify(bytes(changed), keys).ok, (index, bytes(changed[index - 20 : index + 20]))


def test_a_changed_byte_in_an_envelope_is_found(key: SigningKey, keys: Keys) -> None:
    """The same for a record with an envelope and an inline signature beside it."""
    text = lines([with_envelope(alone(key), key)])
    assert verify(text, keys).ok
    for index in range(len(text)):
        changed = bytearray(text)
        changed[index] ^= 0x01
        report = verify(bytes(changed), keys)
        # Renaming the envelope makes it an unsigned extension: then the inline signature no longer matches.
        assert not report.ok, (index, bytes(changed[index - 20 : index + 20]))


@pytest.mark.parametrize("removed", [0, 1, 2, 3])
def test_a_removed_record_is_found(rollout: Rollout, keys: Keys, removed: int) -> None:
    """First, middle, last, and the closing record."""
    records = rollout()
    del records[removed]
    assert not verify(lines(records), keys).ok


def test_a_reordered_chain_is_found(rollout: Rollout, keys: Keys) -> None:
    """Both records that changed places are named."""
    records = rollout()
    records[0], records[1] = records[1], records[0]
    report = verify(lines(records), keys)
    assert report.chain_state is ChainState.BROKEN
    assert [verdict.ok for verdict in report.records] == [False, False, True, True]


def test_a_record_by_another_key_is_found(rollout: Rollout, keys: Keys) -> None:
    """A good signature by a key that is not known is no proof, even under a known name."""
    stranger = SigningKey("stranger", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    impostor = SigningKey("key-test", stranger.private)
    for foreign, reason in ((stranger, "the key 'stranger' is unknown"), (impostor, "does not match the content")):
        records = rollout()
        records[1] = sign_record(records[1], foreign)
        report = verify(lines(records), keys)
        assert [verdict.ok for verdict in report.records] == [True, False, True, True]
        assert reason in report.records[1].reasons[0]
        assert report.records[1].authenticity is Authenticity.INVALID


@pytest.mark.parametrize("algorithm", ["none", "", "ed448", "Ed25519", "hmac-sha256"])
def test_a_wrong_algorithm_is_found(key: SigningKey, keys: Keys, algorithm: str) -> None:
    """Only Ed25519 counts, whatever the signature is."""
    record = alone(key)
    record["signature"]["alg"] = algorithm
    report = single(record, keys)
    assert not report.ok
    assert "the algorithm is" in report.records[0].reasons[0]


def test_an_unsigned_record_is_ok_only_when_allowed(keys: Keys) -> None:
    """By default a record needs a signature."""
    record = {**branch_record("r", 0), "run_id": "run-1"}
    report = single(record, keys)
    assert not report.ok
    assert report.records[0].reasons == ("authenticity: the record is not signed",)
    assert report.records[0].authenticity is Authenticity.UNSIGNED
    assert single(record, keys, allow_unsigned=True).ok


def test_allowing_unsigned_records_does_not_allow_bad_signatures(key: SigningKey, keys: Keys) -> None:
    """A signature that is there must hold."""
    record = alone(key) | {"model_id": "other"}
    assert not single(record, keys, allow_unsigned=True).ok


@pytest.mark.parametrize("number", [2**53 + 1, 10**30])
def test_an_integer_beyond_2_to_53_is_not_ok(keys: Keys, number: int) -> None:
    """It has no exact form, so nothing can be signed over it; the run is still named."""
    text = b'{"schema_version":"aep/v0.3","run_id":"x","created_at_ms":%d}' % number
    (verdict,) = verify(text, keys, allow_unsigned=True).records
    assert not verdict.ok
    assert verdict.run_id == "x"
    assert "an integer beyond 2^53" in verdict.reasons[0]


def test_numbers_are_compared_by_value_not_by_spelling(key: SigningKey, keys: Keys) -> None:
    """1.0 in the file is the 1 that was signed, as for every JavaScript reader."""
    text = orjson.dumps(sign_record({"schema_version": "aep/v0.3", "run_id": "x", "created_at_ms": 1}, key))
    assert verify(text.replace(b'"created_at_ms":1', b'"created_at_ms":1.0'), keys).ok


def test_a_line_that_is_no_record_is_reported_at_its_place(rollout: Rollout, keys: Keys) -> None:
    """The lines around it are verified all the same, and blank lines are nothing."""
    good = lines(rollout())
    report = verify(b'{"half":\n\n[1]\n\xff\n' + b"[" * 100_000 + b"\n" + good, keys)
    assert [verdict.position for verdict in report.records if not verdict.ok] == [
        "aep.jsonl:1",
        "aep.jsonl:3",
        "aep.jsonl:4",
        "aep.jsonl:5",
    ]
    assert [verdict.ok for verdict in report.records[4:]] == [True] * 4
    assert not report.ok
    assert report.chain_state is ChainState.INTACT


def test_nothing_is_not_ok(keys: Keys) -> None:
    """An empty file proves nothing."""
    report = verify(b"", keys)
    assert not report.ok
    assert report.chain_state is ChainState.NOT_PRESENT


def test_layers_are_judged_apart(key: SigningKey, keys: Keys) -> None:
    """A well-signed record can still be wrong, and the verdict says in which layer."""
    semantic = sign_record({**alone(key), "run_side_effect_class_max": "read"}, key)
    structural = sign_record({**alone(key), "user_id": 5}, key)
    first, second = verify(lines([semantic, structural]), keys).records
    assert (first.structural, first.semantic, first.authenticity) == (True, False, Authenticity.INLINE_VALID)
    assert (second.structural, second.semantic, second.authenticity) == (False, True, Authenticity.INLINE_VALID)
    assert not first.ok
    assert not second.ok


def test_the_verdict_as_json_has_the_words_of_the_contract(key: SigningKey, keys: Keys) -> None:
    """run_id, ok and reasons, and a word for each layer."""
    (verdict,) = single(alone(key), keys).records
    assert verdict.as_json() == {
        "position": "1",
        "run_id": "run-1",
        "ok": True,
        "reasons": [],
        "structural": "valid",
        "semantic": "valid",
        "authenticity": "inline-valid",
    }


def test_an_envelope_beside_a_signature_is_dsse_valid(key: SigningKey, keys: Keys) -> None:
    """Both hold, the envelope is named."""
    assert single(with_envelope(alone(key), key), keys).records[0].authenticity is Authenticity.DSSE_VALID


def test_an_envelope_whose_signature_is_repeated_inline_is_dsse_valid(key: SigningKey, keys: Keys) -> None:
    """Emitters of aep/v0.4 copy the envelope's signature; that is no second claim."""
    record = with_envelope({name: value for name, value in alone(key).items() if name != "signature"}, key)
    copied = {"alg": "ed25519", "key_id": key.key_id, "sig": record["dsse_envelope"]["signatures"][0]["sig"]}
    assert single({**record, "signature": copied}, keys).ok
    assert single(record, keys).ok


def test_a_bad_signature_beside_a_good_envelope_is_invalid(key: SigningKey, keys: Keys) -> None:
    """Two claims that disagree are not a proof."""
    record = with_envelope(alone(key), key)
    record["signature"] = record["signature"] | {"sig": "AAAA"}
    assert single(record, keys).records[0].authenticity is Authenticity.INVALID


def test_a_good_signature_does_not_save_a_bad_envelope(key: SigningKey, keys: Keys) -> None:
    """Where there is an envelope, it decides."""
    record = with_envelope(alone(key), key)
    record["dsse_envelope"]["payload"] = "e30="
    assert single(record, keys).records[0].authenticity is Authenticity.INVALID


def test_the_published_vectors_get_their_verdicts() -> None:
    """r1 and r2 are inline-valid and linked; the DSSE one is legacy and not ok."""
    vectors = json.loads(conformance("aep", "aep-vectors.json").read_bytes())
    keys = {"local-dev-key-01": bytes.fromhex(vectors["pub"])}
    report = verify(lines([vectors["r1"], vectors["r2"], vectors["dsse"]]), keys)
    assert [(str(verdict.authenticity), verdict.ok) for verdict in report.records] == [
        ("inline-valid", True),
        ("inline-valid", True),
        ("legacy-dsse", False),
    ]
    assert [(verdict.chain, str(verdict.state)) for verdict in report.chains] == [
        ("run-1", "intact"),
        ("run-d", "not-present"),
    ]


def test_the_shared_file_verifies_as_it_is() -> None:
    """The file of another product, with its published key."""
    published = json.loads(conformance("aep", "aep-shared.pubkey.json").read_bytes())
    keys = {published["key_id"]: bytes.fromhex(published["public_key_hex"])}
    text = conformance("aep", "aep-shared.jsonl").read_bytes()
    assert verify(text, keys).ok
    assert not verify(text.replace(b"fixture-run", b"fixture-ran"), keys).ok


def test_records_can_be_judged_one_by_one(rollout: Rollout, keys: Keys) -> None:
    """A long file need not be in memory: each verdict is final when its record is read."""
    verifier = Verifier(keys)
    text = lines(rollout()).splitlines()
    streamed = [verifier.add(item) for item in read_lines(text, "aep.jsonl")]
    assert (tuple(streamed), verifier.counts[True]) == (verify(lines(rollout()), keys).records, 4)
    assert [verdict.ok for verdict in verifier.finish()] == [True]


def test_a_run_id_that_cannot_be_printed_is_shown_escaped(keys: Keys) -> None:
    """Half a surrogate pair in a name must not break the report."""
    report = verify(b'{"schema_version":"aep/v0.3","run_id":"\\ud800","created_at_ms":1}', keys)
    assert report.records[0].run_id == "\\ud800"
    assert report.chains[0].chain == "\\ud800"
    assert not report.ok


def test_many_faults_are_cut_short(key: SigningKey, keys: Keys) -> None:
    """A hundred bad actions do not make a hundred lines."""
    record = sign_record({**alone(key), "actions": [{}] * 100}, key)
    (verdict,) = single(record, keys).records
    assert len(verdict.reasons) == 21
    assert verdict.reasons[-1] == "structural: and 380 more"


def test_a_record_continues_a_chain_under_another_version(key: SigningKey, keys: Keys) -> None:
    """Versions may change along a chain."""
    records = [{"schema_version": f"aep/v0.{minor}", "run_id": "x", "created_at_ms": minor} for minor in range(1, 6)]
    report = verify(lines(list(sign_chain(records, key))), keys)
    assert report.ok
    assert report.chain_state is ChainState.INTACT
