"""SHA-256 of what comes by the million: events, bodies, texts."""

from collections.abc import Callable
from hashlib import sha256

from schemas.compiled import compiled

_C = compiled("schemas._records")


def _digest(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


sha256_of: Callable[..., bytes] = _digest if _C is None else _C.sha256
"""The SHA-256 of up to eight parts, one after the other."""
