"""The verdicts of files under `trusted_verifiers`: signed if an operator vouches for them, refused if no trusted key
has signed.

`braid ingest`, `braid run` and `braid rank` share it, so that the same lines give the same rows.
"""

from collections.abc import Callable

from agents.evidence.canonical import CanonicalError
from agents.evidence.signing import SigningKey
from agents.facts.fact import Fact
from agents.importers.line_error import LineError
from agents.trust.trusted_keys import TrustedKeys, untrusted
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import Verdict
from streams.cluster.config import Settings
from streams.cluster.signing_keys import require_trust, trusted_verifiers, verifier_key
from streams.log.input_lines import Line

ADVICE = "--sign-verdicts signs the verdicts of these files with verifier.signing_key, where you vouch for them"


class VerdictTrust:
    """Checks the facts of lines. `say` is called at once with the first verdict that does not count."""

    def __init__(
        self,
        trusted: TrustedKeys | None,
        key: SigningKey | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._trusted = trusted
        self._key = key
        self._say = say
        self.is_set = trusted is not None or key is not None
        """Whether there is anything to check."""
        self.count = 0
        """Verdicts that do not count."""
        self.first = ""
        """The place of the first one, and why."""

    def vouched(self, fact: Fact) -> Fact:
        """Return the fact; an unsigned verdict is signed, if there is a key. Raises LineError."""
        if self._key is None or not isinstance(fact, Verdict) or fact.signature is not None:
            return fact
        try:
            return sign_verdict(fact, self._key)
        except CanonicalError as error:
            raise LineError("", str(error)) from None

    def refusal(self, line: Line, fact: Fact) -> str | None:
        """Why a fact does not count; None if it does."""
        if self._trusted is None or not isinstance(fact, Verdict):
            return None
        why = untrusted(fact, self._trusted)
        if why is not None:
            self.count += 1
            if not self.first:
                self.first = f"{line.place}: {why}"
                self._say(untrusted_line(0, self.first))
        return why


def untrusted_line(count: int, first: str) -> str:
    """A message for people about the verdicts that do not count; with a count of 0, about the first one of those to
    come.
    """
    what = "a verdict does not count" if count <= 1 else f"{count:,} verdicts do not count; the first"
    return f"{what}: {first}; {ADVICE}"


def voucher_key(settings: Settings, *, vouches: bool) -> SigningKey | None:
    """The key that signs verdicts of files; None unless the operator vouches for them.

    Raises ConfigError for a key that is not trusted.
    """
    if not vouches:
        return None
    key = verifier_key(settings)
    require_trust(settings, key, None, "verifier.signing_key")
    return key


def verdict_trust(
    settings: Settings, *, vouches: bool, say: Callable[[str], None] = lambda _text: None
) -> VerdictTrust:
    """The trust that is configured. Raises ConfigError when the operator's own key is not trusted."""
    return VerdictTrust(trusted_verifiers(settings), voucher_key(settings, vouches=vouches), say)
