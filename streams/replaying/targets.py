"""Where replayed records go: files of an embedded log, topics with a prefix of their own, or nowhere."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import TypeAdapter, ValidationError

from agents.rollouts.rollout import Rollout
from schemas.closures import Closure
from schemas.codec.maker import unchecked
from streams.cluster import ensure_topics, registry_of, resolve
from streams.codec import Codec
from streams.config import Settings
from streams.durable import PARTIAL
from streams.headers import REDACTED
from streams.log_writer import LogWriter
from streams.looking.files import LOG
from streams.looking.kafka import KafkaLog
from streams.producing import FactWriter
from streams.replaying.emitted import Made
from streams.replaying.logs import ReplayError
from streams.topics import CLOSURES, TOPICS

_PREFIX: TypeAdapter[str] = TypeAdapter(Annotated[str, Settings.model_fields["prefix"]])


class Target(ABC):
    """Takes the records of whole rollouts."""

    async def prepare(self) -> None:
        """Make ready what all processes write to; before any of them begins."""
        return

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
        self._out = out
        self._writer = LogWriter(out / LOG)
        self._codec = Codec()
        self._partition: int | None = None

    async def write(self, rollout: Rollout, partition: int, made: Sequence[Made]) -> None:
        """Append to the files of the partition."""
        assert rollout.closed is not None
        self._partition = partition
        key, at = rollout.rollout_id.encode(), rollout.closed.decided_at_ms
        for closure in _decisions(rollout):
            self._writer.append(CLOSURES.name, partition, key, self._codec.encode(closure), at)
        for each in made:
            headers = (REDACTED,) if each.redacted else ()
            value = self._codec.encode(each.record, each.body, each.emission)
            self._writer.append(each.topic.name, partition, key, value, at, headers)

    async def publish(self, partition: int) -> None:
        """Give the partition's files their names."""
        self._writer.publish(partition=partition)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)
        if (
            kind is not None and self._partition is not None
        ):  # a signal may come before the writer knows a file of its own
            discard_half(self._out, self._partition)


def discard_half(out: Path, partition: int) -> None:
    """Remove what was written of a partition that is not complete."""
    for path in (out / LOG).glob(f"*/{partition:05d}*{PARTIAL}"):
        path.unlink(missing_ok=True)


class Topics(Target):
    """Topics beside the first ones: readers compare, then switch."""

    def __init__(self, settings: Settings, prefix: str, partitions: int) -> None:
        require_prefix(settings, prefix)
        self._beside = resolve(settings.model_copy(update={"prefix": prefix, "partitions": partitions}))
        self._writer = FactWriter(self._beside, "replay")

    async def prepare(self) -> None:
        """Create the topics and register the schemas, once for all processes. Raises ReplayError when anything is in them."""
        async with KafkaLog(self._beside) as log:
            held = await log.count([topic for topic in TOPICS if log.partitions(log.name(topic))])
        if held:
            raise ReplayError(
                f"the topics with prefix {self._beside.prefix!r} hold {held:,} records already, of an earlier replay or of a live "
                "log, and would hold both; give another --to-prefix, or delete those topics first"
            )
        await ensure_topics(self._beside)
        registry = registry_of(self._beside)
        if registry is not None:
            try:
                await Codec(registry, prefix=self._beside.prefix).register()
            finally:
                await registry.close()

    async def write(self, rollout: Rollout, partition: int, made: Sequence[Made]) -> None:
        """Send; records of an earlier run that was cut off are there twice, with the same bytes."""
        del partition
        for closure in _decisions(rollout):
            await self._writer.write(closure)
        for each in made:
            await self._writer.write(each.record, each.body, each.emission, redacted=each.redacted)

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


def require_prefix(settings: Settings, prefix: str) -> None:
    """Raises ReplayError when topics with this prefix cannot be, or are those that are read."""
    if prefix == settings.prefix:
        raise ReplayError(f"--to-prefix {prefix!r} is where the facts are; choose another one")
    require_possible(prefix)


def require_possible(prefix: str) -> None:
    """Raises ReplayError when no topic can have this prefix."""
    try:
        _PREFIX.validate_python(prefix)
    except ValidationError:
        raise ReplayError(f"--to-prefix {prefix!r}: up to 80 letters, digits, dots, dashes and underscores") from None


_closure = unchecked(Closure)


def _decisions(rollout: Rollout) -> tuple[Closure, Closure]:
    return _closure(settled=rollout.settled), _closure(closed=rollout.closed)
