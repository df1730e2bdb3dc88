"""Dead letters: what came and could not count, kept as it was, with where it stood and why.

Key, value and the original headers are untouched; the context is in headers of our own (`__braid.errors.*`), in the shape
that Kafka Streams gave dead letters.
"""

from collections.abc import Iterable
from importlib.metadata import version
from typing import NamedTuple

PREFIX = "__braid.errors."
RETRIED = "__braid.retried"
"""On a fact that was put back: from which dead letter, so that it is put back once."""

CODE_VERSION = version("braidstream")

MAX_MESSAGE = 2000
"""Characters of an error message in a header."""

RawHeaders = Iterable[tuple[str, bytes]]


class Letter(NamedTuple):
    """A record that did not count."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    """The original ones."""
    topic: str
    partition: int
    offset: int
    reason: str
    """A short code: undecodable, wrong_key, late, conflict, fenced, ..."""
    error: str
    """The kind of error."""
    message: str
    """What was wrong, for people; never the content itself."""

    @property
    def origin(self) -> str:
        """Where the original stands; letters with the same origin and reason are the same letter."""
        return f"{self.topic}/{self.partition}/{self.offset}"

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
        }
        return [*self.headers, *((PREFIX + name, text.encode(errors="replace")) for name, text in context.items())]


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
    )
