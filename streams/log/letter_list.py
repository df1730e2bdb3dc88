"""Lists dead letters: finds repetitions, and applies filters.

A letter is identified by the position of its original. A crash can write one twice; letters with the same origin and
reason are one.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from streams.log.letters import RETRIED, Letter, read_letter
from streams.log.reader import LogReader, LookError
from streams.log.record import Placed
from streams.log.topics import DEAD_LETTERS


class DeadLetter(NamedTuple):
    """One letter; its content is read again on demand, so that many large ones can be listed."""

    letter_id: str
    """`topic/partition/offset` of the original; of the letter itself if it does not record its origin."""
    letter: Letter
    """Without its value."""
    size: int
    """Bytes of the value."""
    at: int
    """When it was written."""
    place: tuple[int, int]
    """Partition and offset of the letter itself."""
    copies: int = 1

    @property
    def rollout_id(self) -> str:
        """The rollout that its key names."""
        return (self.letter.key or b"").decode(errors="replace")

    @property
    def has_origin(self) -> bool:
        """Whether it records the position of the original."""
        return bool(self.letter.topic) and self.letter.partition >= 0 and self.letter.offset >= 0

    @property
    def retried_from(self) -> tuple[str, ...]:
        """The letters that the original had been put back from before."""
        return tuple(content.decode(errors="replace") for name, content in self.letter.headers if name == RETRIED)


@dataclass(frozen=True)
class Filters:
    """Filters for letters."""

    letter_id: str | None = None
    reason: str | None = None
    topic: str | None = None
    """A whole name, with its prefix."""
    rollout_id: str | None = None
    since: int | None = None

    def match(self, letter: DeadLetter) -> bool:
        """Whether a letter matches."""
        return (
            self.letter_id in (None, letter.letter_id)
            and self.reason in (None, letter.letter.reason)
            and self.topic in (None, letter.letter.topic)
            and self.rollout_id in (None, letter.rollout_id)
            and (self.since is None or letter.at >= self.since)
        )


def parse_since(text: str) -> int:
    """The time of an ISO 8601 text, in milliseconds; UTC when it names no zone. Raises LookError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise LookError(
            f"--since {text!r} is no time: write it as 2026-01-31, 2026-01-31T09:00 or with a zone"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def dead_letter(placed: Placed) -> DeadLetter:
    """The letter in a record of the dead letter topic, from any writer."""
    topic, partition, record = placed
    try:
        letter = read_letter(record.key, record.value, record.headers)
    except ValueError:  # the partition or offset is not a number: not written by us
        letter = Letter(
            record.key, record.value, record.headers, "", -1, -1, "unknown", "", "its headers make no sense"
        )
    found = DeadLetter(
        letter_id=letter.origin,
        letter=letter._replace(value=None),
        size=len(record.value or b""),
        at=record.at,
        place=(partition, record.offset),
    )
    if found.has_origin:
        return found
    return found._replace(letter_id=f"{topic.name}/{partition}/{record.offset}")


def fold_letter(letters: dict[tuple[str, str], DeadLetter], placed: Placed) -> None:
    """Take a letter in; a repetition is counted, the first one stays."""
    letter = dead_letter(placed)
    identity = (letter.letter_id, letter.letter.reason)
    known = letters.get(identity)
    letters[identity] = letter if known is None else known._replace(copies=known.copies + 1)


async def read_letters(log: LogReader, filters: Filters) -> list[DeadLetter]:
    """The letters that match, oldest first."""
    found: dict[tuple[str, str], DeadLetter] = {}
    # All partitions, even for one rollout: a record written to a wrong one becomes a letter there.
    async for placed in log.records([DEAD_LETTERS], since=filters.since):
        if filters.match(dead_letter(placed)):
            fold_letter(found, placed)
    return sorted(found.values(), key=lambda letter: (letter.at, letter.place))


def by_reason(letters: Iterable[DeadLetter]) -> dict[str, int]:
    """How many letters there are for each reason, most first."""
    return dict(Counter(letter.letter.reason for letter in letters).most_common())
