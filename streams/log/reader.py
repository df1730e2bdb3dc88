"""A log to look into: one small interface, over Kafka (`kafka.py`) and over the files of `braid run` (`files.py`)."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from schemas.base import Record
from schemas.errors import BraidError
from streams.log.facts import read_record
from streams.log.terminal_text import line
from streams.log.topics import Topic
from streams.log.view_rows import ViewRow
from streams.log.wire import Codec


class LookError(BraidError):
    """What was asked for is not there, or cannot be looked at."""


class Stored(NamedTuple):
    """A record as it stands in the log."""

    topic: Topic
    partition: int
    offset: int
    at: int
    """When the log took it in, in milliseconds."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.topic.name}/{self.partition}@{self.offset}"


class Log(ABC):
    """What can be looked into."""

    place: str
    """Where it is, for people."""
    codec: Codec

    @abstractmethod
    def records(
        self, topics: Sequence[Topic], *, rollout_id: str | None = None, since: int | None = None
    ) -> AsyncGenerator[Stored, None]:
        """What stands in topics now, in the order of each partition; of one rollout, and from a time on, when asked.

        Records of other rollouts are passed over by their key, without being decoded.
        """

    @abstractmethod
    async def view_row(self, rollout_id: str) -> ViewRow | None:
        """The worker's row of a rollout, where there is one."""

    async def decode(self, stored: Stored) -> Record:
        """The record in a value.

        Raises DecodeError when it is none or not about the rollout that its key names, RegistryUnreachableError when the
        registry is away.
        """
        await self.codec.prepare([stored.value])
        return read_record(self.codec, stored.topic, stored.key, stored.value)


def unknown_rollout(rollout_id: str, place: str, known: Iterable[str]) -> str:
    """What to say when nobody has heard of a rollout."""
    close = get_close_matches(rollout_id, list(known), n=3)
    meant = f"; did you mean {' or '.join(line(each) for each in close)}?" if close else ""
    return f"{place}: there is no rollout {line(rollout_id)!r}{meant or '; `braid rollouts` lists those there are'}"
