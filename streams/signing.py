"""The key that evidence is signed with: the configured one, else a development key that says so in its id."""

from pathlib import Path

from agents.evidence.keys import development_key, load_key
from agents.evidence.signing import SigningKey
from streams.config import Settings


def signing_key(settings: Settings) -> SigningKey:
    """The configured key, or the development key of this machine (made on first use)."""
    return load_key(Path(settings.signing_key).expanduser()) if settings.signing_key else development_key()
