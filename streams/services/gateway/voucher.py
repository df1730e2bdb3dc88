"""Signatures of verdicts at the gateway: a verdict signed by a verifier passes unchanged, another one is signed here.

The gateway vouches for its tokens: a verdict that gets this far came with the role of a verifier. One that would not count is
refused at once, instead of becoming a dead letter later.
"""

from agents.evidence.canonical import CanonicalError
from agents.evidence.signing import SigningKey
from agents.facts.fact import Fact
from agents.trust.trusted_keys import TrustedKeys, untrusted
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import Verdict
from streams.services.gateway.problems import BAD_CONTENT, ItemError


class Voucher:
    """Signs with the gateway's key."""

    def __init__(self, key: SigningKey, trusted: TrustedKeys | None = None) -> None:
        self.key = key
        self._trusted = trusted

    def vouched(self, fact: Fact) -> Fact:
        """The fact, signed if it is a verdict. Raises ItemError for a verdict that would not count."""
        if not isinstance(fact, Verdict):
            return fact
        try:
            signed = sign_verdict(fact, self.key) if fact.signature is None else fact
        except CanonicalError as error:
            raise ItemError(BAD_CONTENT, "", str(error)) from None
        why = None if self._trusted is None else untrusted(signed, self._trusted)
        if why is not None:
            raise ItemError(BAD_CONTENT, "signature", why)
        return signed
