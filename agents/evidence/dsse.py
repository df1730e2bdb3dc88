"""DSSE: a record as a signed in-toto Statement, for verifiers that know attestations and not AEP.

An envelope is good if every rule below holds and its payload equals the record that carries it.
The signature is over the pre-authentication encoding (PAE) of the decoded payload, as the DSSE standard has it. Some
emitters signed the base64 text instead; such an envelope is recognised and named legacy, and is never good.
"""

import base64
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agents.evidence.canonical import CanonicalError, canonical_bytes, digest, parse_evidence
from agents.evidence.signing import Json, SigningKey, decode_base64, key_faults, signed_body
from agents.evidence.structure import quoted

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
# One predicate type for all record versions: the version of a record is in its schema_version.
PREDICATE_TYPE = "https://wasmagent.dev/attestations/aep/v0.4"
SUBJECT_PREFIX = "urn:wasmagent:run:"


class EnvelopeVerdict(NamedTuple):
    """The verdict on an envelope, with every rule it breaks."""

    state: Literal["valid", "legacy", "invalid"]
    reasons: list[str]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the DSSE v1 pre-authentication encoding, which is signed."""
    kind = payload_type.encode("utf-8", "surrogatepass")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def statement(record: Mapping[str, Any]) -> Json:
    """Return the in-toto Statement of the record."""
    predicate = signed_body(record)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": f"{SUBJECT_PREFIX}{record['run_id']}", "digest": {"sha256": digest(canonical_bytes(predicate))}}
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


def make_envelope(record: Mapping[str, Any], key: SigningKey) -> Json:
    """Return the signed DSSE envelope of a record."""
    payload = canonical_bytes(statement(record))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode("ascii"),
        "signatures": [{"keyid": key.key_id, "sig": key.sign(pae(PAYLOAD_TYPE, payload))}],
    }


def with_envelope(record: Mapping[str, Any], key: SigningKey) -> Json:
    """Return the record with its envelope; an inline signature is kept."""
    return {**record, "dsse_envelope": make_envelope(record, key)}


def is_envelope(value: Mapping[str, Any]) -> bool:
    """Return whether this is a bare envelope and not a record."""
    return "payloadType" in value and "payload" in value and "schema_version" not in value


def enveloped(envelope: Json) -> Json | None:
    """Return the record in an envelope, with the envelope in it; None if there is none. This does not check the
    envelope.
    """
    payload = decode_base64(envelope.get("payload"))
    try:
        said = parse_evidence(payload) if payload is not None else None
    except CanonicalError:
        return None
    predicate = said.get("predicate") if isinstance(said, dict) else None
    return {**signed_body(predicate), "dsse_envelope": envelope} if isinstance(predicate, dict) else None


def check_envelope(record: Mapping[str, Any], keys: Mapping[str, bytes]) -> EnvelopeVerdict:
    """Judge the envelope that a record carries under `dsse_envelope`."""
    envelope = record.get("dsse_envelope")
    if not isinstance(envelope, dict):
        return EnvelopeVerdict("invalid", ["dsse: the envelope must be an object"])
    payload = decode_base64(envelope.get("payload"))
    if payload is None:
        return EnvelopeVerdict("invalid", ["dsse: the payload is not base64"])
    reasons, only_version_differs = _statement_faults(record, payload)
    if envelope.get("payloadType") != PAYLOAD_TYPE:
        reasons.append(f"dsse: payloadType is {quoted(envelope.get('payloadType'))}, not {PAYLOAD_TYPE!r}")
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        return EnvelopeVerdict("invalid", [*reasons, "dsse: there must be exactly one signature"])

    key_id, signature = signatures[0].get("keyid"), signatures[0].get("sig")
    payload_type = str(envelope.get("payloadType"))
    faults = key_faults("dsse", key_id, signature, pae(payload_type, payload), keys)
    if not faults:
        return EnvelopeVerdict("invalid" if reasons else "valid", reasons)
    text = envelope["payload"].encode("ascii")
    if key_faults("dsse", key_id, signature, pae(payload_type, text), keys):
        return EnvelopeVerdict("invalid", reasons + faults)
    # The emitters that signed the text also raised the record's version after signing; more than that is tampering.
    state: Literal["legacy", "invalid"] = "invalid" if reasons and not only_version_differs else "legacy"
    return EnvelopeVerdict(
        state, [*reasons, "dsse: the signature covers the base64 text, not the decoded payload (legacy)"]
    )


class _StatementFaults(NamedTuple):
    reasons: list[str]
    only_version_differs: bool


def _statement_faults(record: Mapping[str, Any], payload: bytes) -> _StatementFaults:
    """Return the differences between the payload and the Statement of this record."""
    try:
        said = parse_evidence(payload)
        if not isinstance(said, dict):
            return _StatementFaults(["dsse: the payload is not an in-toto Statement"], False)
        predicate = said.get("predicate")
        predicate_bytes = canonical_bytes(predicate)
        record_bytes = canonical_bytes(signed_body(record))
    except CanonicalError as error:
        return _StatementFaults([f"dsse: {error}"], False)

    reasons = []
    if said.get("_type") != STATEMENT_TYPE:
        reasons.append(f"dsse: the Statement's _type is {quoted(said.get('_type'))}, not {STATEMENT_TYPE!r}")
    if said.get("predicateType") != PREDICATE_TYPE:
        reasons.append(f"dsse: predicateType is {quoted(said.get('predicateType'))}, not {PREDICATE_TYPE!r}")
    reasons += _subject_faults(said.get("subject"), record.get("run_id"), digest(predicate_bytes))
    if predicate_bytes == record_bytes:
        return _StatementFaults(reasons, False)

    names = _differing(predicate, signed_body(record)) if isinstance(predicate, dict) else []
    where = f" ({', '.join(names)})" if names else ""
    only_version_differs = not reasons and names == ["schema_version"]
    return _StatementFaults([*reasons, f"dsse: the predicate is not the record{where}"], only_version_differs)


def _subject_faults(subject: object, run_id: object, predicate_digest: str) -> list[str]:
    if not isinstance(subject, list) or len(subject) != 1 or not isinstance(subject[0], dict):
        return ["dsse: there must be exactly one subject"]
    reasons = []
    name = subject[0].get("name")
    if name != f"{SUBJECT_PREFIX}{run_id}":
        reasons.append(f"dsse: the subject is {quoted(name)}, not {SUBJECT_PREFIX + str(run_id)!r}")
    digests = subject[0].get("digest")
    if not isinstance(digests, dict) or digests.get("sha256") != predicate_digest:
        reasons.append("dsse: the subject's sha256 is not that of the predicate")
    return reasons


def _differing(left: Json, right: Json) -> list[str]:
    """Name the members that the two do not share; both are known to have canonical bytes."""
    missing = left.keys() ^ right.keys()
    shared = left.keys() & right.keys()
    return sorted(missing | {name for name in shared if canonical_bytes(left[name]) != canonical_bytes(right[name])})
