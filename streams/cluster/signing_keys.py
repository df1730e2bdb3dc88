"""Keys: those that this machine signs with (configured, else development keys, marked as such), and those that are
trusted.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from agents.evidence.keys import (
    DEVELOPMENT_FILE,
    KeyFileError,
    development_key,
    load_key,
    parse_public_key,
    public_keys,
)
from agents.evidence.signing import SigningKey
from agents.trust.trusted_keys import TrustedKey
from streams.cluster.config import ConfigError, Settings


def signing_key(settings: Settings) -> SigningKey:
    """The key of evidence."""
    return _key(settings.signing_key, DEVELOPMENT_FILE)


def verifier_key(settings: Settings) -> SigningKey:
    """The key of the verdicts that verifiers of this machine give."""
    return _key(settings.verifier.signing_key, "development-verifier.pem")


def gateway_key(settings: Settings) -> SigningKey:
    """The key with which the gateway vouches for verdicts that came with a verifier's token."""
    return _key(settings.gateway.signing_key, "development-gateway.pem")


def _key(configured: str, development_file: str) -> SigningKey:
    """The configured key, or a development key of this machine (made on first use)."""
    return load_key(Path(configured).expanduser()) if configured else development_key(file=development_file)


def trusted_verifiers(settings: Settings) -> dict[str, TrustedKey] | None:
    """The keys whose verdicts count; None: all verdicts count. `local` makes the development keys that are missing."""
    if settings.trusted_verifiers != "local":
        return settings.trusted_verifiers
    own = (verifier_key(settings), gateway_key(settings))
    return {key.key_id: TrustedKey(public_key=key.public.hex()) for key in own}


def require_trust(settings: Settings, key: SigningKey, kind: str | None, setting: str) -> None:
    """Raise ConfigError when verdicts (of a kind) that this key signs would not count."""
    trusted = trusted_verifiers(settings)
    if trusted is None:
        return
    known = trusted.get(key.key_id)
    if known is None or known.public != key.public:
        raise ConfigError(
            f"trusted_verifiers does not name the key {key.key_id} of {setting}: none of its verdicts would count; "
            f'add "{key.key_id}" = "{key.public.hex()}" under [trusted_verifiers], or set {setting} to a key that is there'
        )
    if kind is not None and known.kinds and kind not in known.kinds:
        raise ConfigError(
            f"trusted_verifiers lets the key {key.key_id} of {setting} speak for {', '.join(known.kinds)}, not for {kind}"
        )


def trusted_keys(settings: Settings, given: Sequence[str] = ()) -> dict[str, bytes]:
    """The keys of this machine, and those given as KEYID=HEX; of two with one id the given one counts."""
    try:
        own = public_keys(files=[Path(settings.signing_key).expanduser()] if settings.signing_key else [])
    except KeyFileError as error:
        sys.stderr.write(f"braid: the keys of this machine are left out: {error}\n")
        own = []
    return {key.key_id: key.public for key in (*own, *map(parse_public_key, given))}
