"""The log of dead letters as these commands read it: chosen by filters, each found by its id."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streams.commands.options import Flags

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.log.kafka_reader import KafkaReader
    from streams.log.letter_list import Filters
    from streams.log.reader import LookError


@dataclass(frozen=True, kw_only=True)
class LetterFlags(Flags):
    """Which letters."""

    reason: str | None = None
    """Only letters with this reason: undecodable, late, conflict, fenced, ..."""
    topic: str | None = None
    """Only letters whose original is in this topic (a part of its name is enough)."""
    rollout: str | None = None
    """Only letters of this rollout."""
    since: str | None = None
    """Only letters written at or after this time (ISO 8601; UTC when it names no zone)."""

    def filters(self, settings: "Settings", letter: str | None = None) -> "Filters":
        """These filters, with that of an id."""
        from streams.log.letter_list import Filters, parse_since
        from streams.views.topic_name import find_topic

        topic = self.topic
        return Filters(
            letter_id=letter,
            reason=self.reason,
            topic=None if topic is None else settings.prefix + find_topic(topic, settings.prefix).name,
            rollout_id=self.rollout,
            since=None if self.since is None else parse_since(self.since),
        )


@asynccontextmanager
async def letter_log(settings: "Settings") -> "AsyncGenerator[KafkaReader, None]":
    """Open the log; raises an error when it has no topic of dead letters."""
    from streams.log.kafka_reader import KafkaReader, hush
    from streams.log.topics import DEAD_LETTERS
    from streams.views.progress import progress

    hush()
    with progress() as say:
        async with KafkaReader(settings, say) as log:
            log.require(DEAD_LETTERS)
            yield log


def no_letter(log: "KafkaReader", filters: "Filters") -> "LookError":
    """The error of an id that no letter has."""
    from streams.log.reader import LookError

    return LookError(f"{log.place}: there is no dead letter {filters.letter_id!r}; `braid dead-letters list` has ids")
