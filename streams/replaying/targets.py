"""Where replayed records go: files of an embedded log, topics with a prefix of their own, or nowhere."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from agents.rollouts.rollout import Rollout
from schemas.closures import Closure
from streams.codec import Codec
from streams.config import Settings
from streams.embedded import LogWriter
from streams.headers import REDACTED
from streams.producing import FactWriter
from streams.replaying.comparing import Made
from streams.replaying.logs import ReplayError
from streams.topics import CLOSURES

LOG = "log"


class Target(ABC):
    """Takes the records of whole rollouts."""

    @abstractmethod
    async def write(self, rollout: Rollout, partition: int, made: Sequence[Made]) -> None:
        """Take a rollout's records, and the decisions that they follow from: what is written can be checked and exported."""

    @abstractmethod
    async def publish(self, partition: int) -> None:
        """The partition is complete."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class Nowhere(Target):
    """A dry run."""

    async def write(self, rollout: Rollout, partition: int, made: Sequence[Made]) -> None:
        """Nothing is written."""

    async def publish(self, partition: int) -> None:
        """Nothing was written."""


class Files(Target):
    """An embedded log: one file per sink and partition, visible when the partition is complete."""

    def __init__(self, out: Path) -> None:
        self._writer = LogWriter(out / LOG)
        self._codec = Codec()

    async def write(self, rollout: Rollout, partition: int, made: Sequence[Made]) -> None:
        """Append to the files of the partition."""
        assert rollout.closed is not None
        key, at = rollout.rollout_id.encode(), rollout.closed.decided_at_ms
        for closure in _decisions(rollout):
            self._writer.append(CLOSURES.name, partition, key, self._codec.encode(closure), at)
        for topic, record, body, redacted in made:
            headers = (REDACTED,) if redacted else ()
            self._writer.append(topic.name, partition, key, self._codec.encode(record, body), at, headers)

    async def publish(self, partition: int) -> None:
        """Give the partition's files their names."""
        self._writer.publish(partition=partition)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)


class Topics(Target):
    """Topics beside the first ones: readers compare, then switch."""

    def __init__(self, settings: Settings, prefix: str, partitions: int) -> None:
        if prefix == settings.prefix:
            raise ReplayError(f"--to-prefix {prefix!r} is where the facts are; choose another one")
        beside = settings.model_copy(update={"prefix": prefix, "partitions": partitions})
        self._writer = FactWriter(beside, "replay")

    async def write(self, rollout: Rollout, partition: int, made: Sequence[Made]) -> None:
        """Send; records of an earlier run that was cut off are there twice, with the same bytes."""
        del partition
        for closure in _decisions(rollout):
            await self._writer.write(closure)
        for _, record, body, redacted in made:
            await self._writer.write(record, body, redacted=redacted)

    async def publish(self, partition: int) -> None:
        """Wait until the broker has everything."""
        del partition
        await self._writer.flush()

    async def __aenter__(self) -> Self:
        await self._writer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._writer.__aexit__(kind, error, trace)


def _decisions(rollout: Rollout) -> tuple[Closure, Closure]:
    return Closure(settled=rollout.settled), Closure(closed=rollout.closed)
