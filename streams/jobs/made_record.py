"""A record that follows from a rollout, on its way to a target."""

from typing import final

from schemas.base import Record


@final
class Made:
    """A record, and what is known of it already."""

    __slots__ = ("body", "emission", "record", "redacted")

    def __init__(
        self, record: Record, body: bytes | None = None, redacted: bool = False, emission: int | None = None
    ) -> None:
        self.record = record
        """The record; signed, if it is evidence and there is a key."""
        self.body = body
        """Its Avro body, if it is known."""
        self.redacted = redacted
        """Whether secrets were removed from it, by the rules that this code has."""
        self.emission = emission
        """The emission version whose schema it is written with; None: the newest schema."""
