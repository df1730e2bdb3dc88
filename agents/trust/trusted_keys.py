"""The trusted keys, and the kinds of verdicts that each may sign. Pure: a verdict in, the reason why it does not count
out.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from agents.evidence.structure import quoted
from agents.trust.verdict_signature import is_signed_by
from agents.verdicts.meaning import RESERVED, Verdict, kind_of
from schemas.verdicts import CheckVerdict


class TrustedKey(BaseModel):
    """A verifier's public key. A bare hex string is a key for every kind."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    public_key: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    """The 32 bytes in hex, as `braid keys show` prints them."""
    kinds: tuple[str, ...] = ()
    """The kinds that it may speak for: build, visual, names of checks. Empty: all."""

    @model_validator(mode="before")
    @classmethod
    def _from_hex(cls, given: Any) -> Any:
        return {"public_key": given} if isinstance(given, str) else given

    @property
    def public(self) -> bytes:
        """The key itself."""
        return bytes.fromhex(self.public_key)


UNTRUSTED = "untrusted"
"""The reason of dead letters of verdicts that no trusted key has signed."""

TrustedKeys = Mapping[str, TrustedKey]
"""By key id."""

TrustedVerifiers = Annotated[
    Annotated[Literal["local"], Tag("local")] | Annotated[dict[str, TrustedKey], Tag("keys")],
    Discriminator(lambda given: "local" if isinstance(given, str) else "keys"),
]
"""The value in the configuration: keys by id, or `local` for the keys of this machine."""


def untrusted(verdict: Verdict, keys: TrustedKeys) -> str | None:
    """Why a verdict does not count under these keys; None if it does. Names the key and the kind, never the content."""
    kind = kind_of(verdict)
    if isinstance(verdict, CheckVerdict) and kind in RESERVED:
        return f"a check may not be named {kind}: that kind has verdicts of its own"
    signature = verdict.signature
    if signature is None:
        return "the verdict is not signed, and trusted_verifiers is set"
    key, name = keys.get(signature.key_id), quoted(signature.key_id)
    if key is None:
        return f"trusted_verifiers does not name the key {name} that signed the verdict"
    if not is_signed_by(verdict, signature.key_id, key.public):
        return f"the signature is not one of the key {name} over this verdict"
    if key.kinds and kind not in key.kinds:
        return f"trusted_verifiers lets the key {name} speak for {', '.join(key.kinds)}, not for {quoted(kind)}"
    return None


def is_trusted(verdict: Verdict, keys: TrustedKeys) -> bool:
    """Whether a verdict counts under these keys."""
    return untrusted(verdict, keys) is None
