"""The signature of a verdict: Ed25519 over its whole content and its kind.

A signature covers the rollout, branch, attempt and id, so it is not valid for another verdict. Fields with their
default are left out of the signed bytes: a verdict that an older version signed stays valid when its record gets new
fields.
"""

from hashlib import sha256
from typing import TypeVar, cast

from agents.evidence.canonical import canonical_bytes
from agents.evidence.signing import SigningKey, covers, decode_base64
from agents.verdicts.meaning import Verdict
from schemas.verdicts import VerdictSignature

SomeVerdict = TypeVar("SomeVerdict", bound=Verdict)

DOMAIN = "braidstream verdict v1"
"""Begins the signed bytes, so that no signature of evidence is valid for a verdict, and none of a build is valid for a
check.
"""


def signed_content(verdict: Verdict) -> bytes:
    """Return the bytes that are signed. Raises CanonicalError for a text that no log can contain (half a surrogate
    pair).
    """
    said = verdict.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)
    return f"{DOMAIN}\n{type(verdict).__name__}\n".encode() + canonical_bytes(said, big_integers="exact")


def content_digest(verdict: Verdict) -> str:
    """Return the SHA-256 of the signed bytes: the name of the content under any signature."""
    return sha256(signed_content(verdict)).hexdigest()


def sign_verdict(verdict: SomeVerdict, key: SigningKey) -> SomeVerdict:
    """Return the verdict with the signature of this key, in place of any other. Raises CanonicalError."""
    signature = VerdictSignature(key_id=key.key_id, sig=key.sign(signed_content(verdict)))
    return cast("SomeVerdict", verdict.model_copy(update={"signature": signature}))


def is_signed_by(verdict: Verdict, key_id: str, public: bytes) -> bool:
    """Whether the verdict carries a signature by this key that covers all of it."""
    signature = verdict.signature
    if signature is None or signature.key_id != key_id:
        return False
    raw = decode_base64(signature.sig)
    return raw is not None and covers(public, raw, signed_content(verdict))


def same_content(one: Verdict, other: Verdict) -> bool:
    """Whether two verdicts have the same content, under any signatures."""
    if type(one) is not type(other):
        return False
    return vars(one) | {"signature": None} == vars(other) | {"signature": None}
