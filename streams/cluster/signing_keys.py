"""Keys: the one that evidence is signed with (configured, else a development key that says so), and those that are trusted."""

import sys
from collections.abc import Sequence
from pathlib import Path

from agents.evidence.keys import KeyFileError, development_key, load_key, parse_public_key, public_keys
from agents.evidence.signing import SigningKey
from streams.cluster.config import Settings


def signing_key(settings: Settings) -> SigningKey:
    """The configured key, or the development key of this machine (made on first use)."""
    return load_key(Path(settings.signing_key).expanduser()) if settings.signing_key else development_key()


def trusted_keys(settings: Settings, given: Sequence[str] = ()) -> dict[str, bytes]:
    """The keys of this machine, and those that were given as KEYID=HEX; of two with one name the given one counts."""
    try:
        own = public_keys(files=[Path(settings.signing_key).expanduser()] if settings.signing_key else [])
    except KeyFileError as error:
        sys.stderr.write(f"braid: the keys of this machine are left out: {error}\n")
        own = []
    return {key.key_id: key.public for key in (*own, *map(parse_public_key, given))}
