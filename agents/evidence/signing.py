"""Signing and linking: Ed25519 over a record's canonical bytes, and the hash by which the next record names it.

A signature covers everything in a record but `signature` and `dsse_envelope`. Ed25519 is deterministic,
so the same record under the same key always has the same signature. Reading is strict where the encoding is ambiguous:
only the normal form of a base64 text is accepted, so that no byte of it can be changed undetected.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from agents.evidence.canonical import canonical_bytes, digest
from agents.evidence.structure import quoted

Json = dict[str, Any]
"""A JSON object, as parsed."""

ALGORITHM = "ed25519"
UNSIGNED_FIELDS = frozenset({"signature", "dsse_envelope"})
"""The members of a record that its signature and its hash leave out."""


@dataclass(frozen=True)
class SigningKey:
    """A private key and the name under which others find its public half."""

    key_id: str
    private: Ed25519PrivateKey = field(repr=False)

    @cached_property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        return self.private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> str:
        """Return the signature of the message as base64."""
        return base64.b64encode(self.private.sign(message)).decode("ascii")


def sign_record(record: Mapping[str, Any], key: SigningKey) -> Json:
    """Return the record with a fresh signature; an older signature or envelope is dropped."""
    body = signed_body(record)
    return _signed(body, canonical_bytes(body), key)


def chain(records: Iterable[Mapping[str, Any]], previous: str | None = None) -> Iterator[Json]:
    """Yield the records unsigned, each naming the hash of the one before; the first names `previous`."""
    for record in records:
        body = signed_body(record) | {"prev_record_hash": previous}
        previous = digest(canonical_bytes(body))
        yield body


def sign_chain(records: Iterable[Mapping[str, Any]], key: SigningKey, previous: str | None = None) -> Iterator[Json]:
    """Yield the records linked and signed; the canonical bytes of each are made once."""
    for record in records:
        body = signed_body(record) | {"prev_record_hash": previous}
        message = canonical_bytes(body)
        previous = digest(message)
        yield _signed(body, message, key)


def signed_body(record: Mapping[str, Any]) -> Json:
    """Return the signed part: the record without `signature` and `dsse_envelope`."""
    return {name: value for name, value in record.items() if name not in UNSIGNED_FIELDS}


def signed_bytes(record: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed and hashed."""
    return canonical_bytes(signed_body(record))


def record_hash(record: Mapping[str, Any]) -> str:
    """Return the hash by which the next record of a chain names this one."""
    return digest(signed_bytes(record))


def signature_faults(signature: object, message: bytes, keys: Mapping[str, bytes]) -> list[str]:
    """Return the faults of an inline signature of the message; empty if it is good."""
    if not isinstance(signature, dict):
        return ["signature: must be an object with alg, key_id and sig"]
    if signature.get("alg") != ALGORITHM:
        return [f"signature: the algorithm is {quoted(signature.get('alg'))}, only {ALGORITHM!r} is accepted"]
    return key_faults("signature", signature.get("key_id"), signature.get("sig"), message, keys)


def key_faults(where: str, key_id: object, signature: object, message: bytes, keys: Mapping[str, bytes]) -> list[str]:
    """Return why this base64 signature by this key does not cover the message; empty if it does."""
    public = keys.get(key_id) if isinstance(key_id, str) else None
    if public is None:
        return [f"{where}: the key {quoted(key_id)} is unknown"]
    raw = decode_base64(signature)
    if raw is None:
        return [f"{where}: the signature is not base64"]
    if not covers(public, raw, message):
        return [f"{where}: the signature does not match the content"]
    return []


def covers(public: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether the signature is this public key's over the message."""
    try:
        _public_key(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def decode_base64(text: object) -> bytes | None:
    """Decode padded standard base64 in its normal form; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    # The last character has spare bits that a decoder ignores; a change there must not pass.
    return raw if base64.b64encode(raw).decode("ascii") == text else None


def _signed(body: Json, message: bytes, key: SigningKey) -> Json:
    return body | {"signature": {"alg": ALGORITHM, "key_id": key.key_id, "sig": key.sign(message)}}


@lru_cache(maxsize=256)
def _public_key(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)
