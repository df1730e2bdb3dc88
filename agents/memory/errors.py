"""What can go wrong with memory."""

from schemas.errors import BraidError


class MemoryStoreError(BraidError):
    """A store that cannot be read or written, or an embedding that cannot be used."""
