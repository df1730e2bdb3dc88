"""Dead letters: records that could not count, kept as they were, with their place and the reason. The one way to bury a record.

Key, value and the original headers are untouched; the context is in headers of our own (`__braid.errors.*`), in the shape
that Kafka Streams gave dead letters. A record too large for a letter (it fitted into its topic by compression) is
truncated; the letter says so, and has the position of the whole record.
"""

from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import version
from typing import NamedTuple

from streams.log.outgoing_record import Outgoing, Send
from streams.log.record import LogRecord
from streams.log.topics import DEAD_LETTERS

PREFIX = "__braid.errors."
RETRIED = "__braid.retried"
"""On a fact that was put back: from which dead letter, so that it is put back once."""

CODE_VERSION = version("braidstream")

MAX_MESSAGE = 2000
"""Characters of an error message in a header."""

NOT_COUNTED = "NotCounted"
"""The kind of error of a record that is well formed."""

CUT_KEY = 1024
"""Bytes of the key in a letter that is cut."""

Headers = tuple[tuple[str, bytes], ...]
RawHeaders = Iterable[tuple[str, bytes]]


class Letter(NamedTuple):
    """A record that did not count."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    """The original ones."""
    topic: str
    partition: int
    offset: int
    reason: str
    """A short code: undecodable, wrong_key, late, conflict, fenced, ..."""
    error: str
    """The kind of error."""
    message: str
    """The error, for people; never the content itself."""
    cut: str = ""
    """The missing part, if the letter could not hold the whole record."""

    @property
    def origin(self) -> str:
        """The position of the original; letters with the same origin and reason are the same letter."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    def fitted(self) -> "Letter":
        """The letter in a size that the dead letter topic takes: unchanged, unless the record is too large."""
        if self._size() <= DEAD_LETTERS.max_bytes:
            # Kafka's clients write no record without key and value: an empty value replaces it.
            return self._replace(value=b"") if self.key is None and self.value is None else self
        key = self.key and self.key[:CUT_KEY]
        whole = self.value or b""
        part = whole[: DEAD_LETTERS.max_bytes - CUT_KEY]
        cut = (
            f"the first {len(part):,} of {len(whole):,} bytes of the value (SHA-256 of all: {sha256(whole).hexdigest()}), "
            f"the first {len(key or b''):,} of {len(self.key or b''):,} bytes of the key, "
            f"none of {len(self.headers):,} headers; all of it stands in {self.origin}"
        )
        return self._replace(key=key, value=part, headers=(), cut=cut)

    def outgoing(self, prefix: str = "") -> Outgoing:
        """Address the letter, fitted: to the partition that has the number of its original's."""
        fitted = self.fitted()
        topic = prefix + DEAD_LETTERS.name
        return Outgoing(topic, self.partition, fitted.key, fitted.value, fitted.wire_headers())

    def _size(self) -> int:
        parts = sum(len(name.encode()) + len(content or b"") for name, content in self.headers)
        return len(self.key or b"") + len(self.value or b"") + parts

    def wire_headers(self) -> list[tuple[str, bytes]]:
        """The original headers, then the context."""
        context = {
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "reason": self.reason,
            "exception": self.error,
            "message": self.message[:MAX_MESSAGE],
            "code.version": CODE_VERSION,
        } | ({"cut": self.cut} if self.cut else {})
        return [*self.headers, *((PREFIX + name, text.encode(errors="replace")) for name, text in context.items())]


def letter_of(
    topic: str, partition: int, record: LogRecord, reason: str, message: str, error: str = NOT_COUNTED
) -> Letter:
    """Return the letter of a record of a topic (with its prefix) and partition."""
    place = (topic, partition, record.offset)
    return Letter(record.key, record.value, record.headers, *place, reason, error, message)


async def bury(letter: Letter, prefix: str, send: Send) -> None:
    """Write a letter, and log that it was written."""
    rollout = (letter.key or b"")[:CUT_KEY].decode(errors="replace")
    import structlog  # readers of letters do not have to load it

    structlog.get_logger().warning(
        "dead letter", reason=letter.reason, origin=letter.origin, message=letter.message, rollout=rollout
    )
    await send(letter.outgoing(prefix))


def read_letter(key: bytes | None, value: bytes | None, headers: RawHeaders) -> Letter:
    """A dead letter as it was written."""
    context: dict[str, str] = {}
    original = []
    for name, content in headers:
        if name.startswith(PREFIX):
            context[name.removeprefix(PREFIX)] = (content or b"").decode(errors="replace")
        else:
            original.append((name, content))
    return Letter(
        key=key,
        value=value,
        headers=tuple(original),
        topic=context.get("topic", ""),
        partition=int(context.get("partition", "-1")),
        offset=int(context.get("offset", "-1")),
        reason=context.get("reason", "unknown"),
        error=context.get("exception", ""),
        message=context.get("message", ""),
        cut=context.get("cut", ""),
    )
