"""Targets of jobs that make the records of whole rollouts again: a log in files, JSON lines, topics, or nowhere.

A target knows which rollouts it has already. Nothing of it is published before it is complete.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import TypeAdapter, ValidationError

from agents.evidence.signing import SigningKey
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure
from schemas.codec.maker import unchecked
from schemas.errors import BraidError, DecodeError
from schemas.evidence import AepRecord
from schemas.lifecycle import Lifecycle
from streams.cluster.config import Settings
from streams.cluster.connections import registry_of
from streams.jobs.made_record import Made
from streams.log.durable_files import PARTIAL
from streams.log.file_writer import LogWriter
from streams.log.files import LOG
from streams.log.headers import REDACTED
from streams.log.json_lines import SINK_FILES, Outputs
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.manifest import LOG_MANIFEST, described, seal
from streams.log.topic_setup import ensure_topics
from streams.log.topics import BY_RECORD, CLOSURES, EVIDENCE, TOPICS
from streams.log.wire import Codec

_PREFIX: TypeAdapter[str] = TypeAdapter(Annotated[str, Settings.model_fields["prefix"]])


class TargetError(BraidError):
    """Results that cannot be written to their target."""


class Target(ABC):
    """Takes the records of whole rollouts."""

    async def prepare(self) -> None:
        """Prepare the shared parts, before any process begins to write."""
        return

    def has(self, rollout: Rollout) -> bool:
        """Whether all records of the rollout under this settling are there. Raises TargetError if there are records of
        another settling.
        """
        del rollout
        return False

    @abstractmethod
    async def write(self, rollout: Rollout, made: Sequence[Made], partition: int = 0) -> None:
        """Write a rollout's records; a log also gets the decisions behind them.

        `partition` is that of the log that is read. Files keep it; topics have their own.
        """

    async def publish(self, partition: int) -> None:
        """Complete a partition."""
        del partition

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class Nowhere(Target):
    """A dry run."""

    async def write(self, rollout: Rollout, made: Sequence[Made], partition: int = 0) -> None:
        """Write nothing."""


class LogDirectory(Target):
    """An embedded log: one file per sink and partition, visible when the partition is complete."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._writer = LogWriter(out / LOG)
        self._codec = Codec()
        self._partition: int | None = None

    async def write(self, rollout: Rollout, made: Sequence[Made], partition: int = 0) -> None:
        """Append to the files of the partition."""
        # Without an envelope: key and partition are known, there are no headers, and it would take 0.6 us more a
        # record.
        assert rollout.closed is not None
        self._partition = partition
        key, at = rollout.rollout_id.encode(), rollout.closed.decided_at_ms
        for closure in _decisions(rollout):
            self._writer.append(CLOSURES.name, partition, key, self._codec.encode(closure), at)
        for each in made:
            topic = BY_RECORD[type(each.record)].name
            value = self._codec.encode(each.record, each.body, each.emission)
            self._writer.append(topic, partition, key, value, at, (REDACTED,) if each.redacted else ())

    async def publish(self, partition: int) -> None:
        """Rename the partition's files to their final names."""
        self._writer.publish(partition=partition)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)
        # A signal may arrive before the writer has a file of its own.
        if kind is not None and self._partition is not None:
            discard_half(self._out, self._partition)


def discard_half(out: Path, partition: int) -> None:
    """Remove the files of an incomplete partition."""
    for path in (out / LOG).glob(f"*/{partition:05d}*{PARTIAL}"):
        path.unlink(missing_ok=True)


class SinkDirectory(Target):
    """JSON lines, one file per sink, made as a whole. The manifest comes last; it also lists the files `beside` them."""

    def __init__(self, folder: Path, kind: str, key: SigningKey | None, beside: Sequence[Path] = ()) -> None:
        self._folder = folder
        self._kind = kind
        self._key = key
        self._beside = beside
        self._outputs = Outputs(folder, SINK_FILES)
        self._rollouts: list[str] = []

    async def write(self, rollout: Rollout, made: Sequence[Made], partition: int = 0) -> None:
        """Add to the file of each sink."""
        del partition
        self._rollouts.append(rollout.rollout_id)
        self._outputs.write([each.record for each in made])

    async def __aenter__(self) -> Self:
        (self._folder / LOG_MANIFEST).unlink(missing_ok=True)
        self._outputs.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outputs.__exit__(kind, error, trace)
        if kind is None:
            files = described(self._folder, [*self._beside, *(self._folder / name for name in SINK_FILES.values())])
            seal(self._folder, self._kind, files, self._key, {"rollouts": sorted(self._rollouts)})


class _Topics(Target):
    """Topics separate from those that are read."""

    def __init__(self, writer: FactWriter) -> None:
        self._writer = writer
        self._settings = writer.settings

    async def __aenter__(self) -> Self:
        await self._writer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._writer.__aexit__(kind, error, trace)


class NewTopics(_Topics):
    """Topics that are empty before."""

    async def prepare(self) -> None:
        """Create the topics and register the schemas, once for all processes. Raises TargetError when anything is in them."""
        async with KafkaReader(self._settings) as log:
            held = await log.count(TOPICS)
        if held:
            raise TargetError(
                f"the topics with prefix {self._settings.prefix!r} hold {held:,} records already, of an earlier replay or of a live "
                "log, and would hold both; give another --to-prefix, or delete those topics first"
            )
        await ensure_topics(self._settings)
        registry = registry_of(self._settings)
        if registry is not None:
            try:
                await Codec(registry, prefix=self._settings.prefix).register()
            finally:
                await registry.close()

    async def write(self, rollout: Rollout, made: Sequence[Made], partition: int = 0) -> None:
        """Send; records of an earlier, interrupted run are then there twice, with the same bytes."""
        del partition
        for closure in _decisions(rollout):
            await self._writer.write(closure)
        for each in made:
            await self._writer.write(each.record, each.body, each.emission, redacted=each.redacted)

    async def publish(self, partition: int) -> None:
        """Wait until the broker has everything."""
        del partition
        await self._writer.flush()


class ResumedTopics(_Topics):
    """Topics that an earlier run may have begun: openings, decisions, and their output. A complete rollout is not
    written again.
    """

    def __init__(self, writer: FactWriter) -> None:
        super().__init__(writer)
        self._settled: dict[str, str] = {}
        self._whole: set[str] = set()

    async def prepare(self) -> None:
        """Read which rollouts are there."""
        async with KafkaReader(self._settings) as log:
            async for placed in log.records([CLOSURES, EVIDENCE]):
                try:
                    record = await log.decode(placed)
                except DecodeError:
                    continue
                if isinstance(record, Closure) and record.settled is not None:
                    self._settled.setdefault(record.settled.rollout_id, record.settled.settled_id)
                elif isinstance(record, AepRecord) and record.closing is not None:
                    self._whole.add(record.closing.settled_id)

    def has(self, rollout: Rollout) -> bool:
        """Whether its closing evidence, which is written last, is there."""
        settled = rollout.settled
        assert settled is not None
        there = self._settled.get(rollout.rollout_id, settled.settled_id)
        if there != settled.settled_id:
            raise TargetError(
                f"{self._settings.prefix}{CLOSURES.name} holds {rollout.rollout_id} as another judge, rubric or configuration "
                "settled it; give every judge a --to-prefix of its own"
            )
        return settled.settled_id in self._whole

    async def write(self, rollout: Rollout, made: Sequence[Made], partition: int = 0) -> None:
        """In the order of the live worker: the record that lists the others comes last, when they are acknowledged."""
        del partition
        opened = [Made(Lifecycle(opened=rollout.opened))] if rollout.opened is not None else []
        *others, last = made
        for some in ([*opened, *map(Made, _decisions(rollout)), *others], [last]):
            for each in some:
                await self._writer.write(each.record, each.body, each.emission, redacted=each.redacted)
            await self._writer.flush()


def topic_writer(settings: Settings, prefix: str, source: str, partitions: int | None = None) -> FactWriter:
    """Return a writer to topics with another prefix. Raises TargetError as `require_prefix` does."""
    require_prefix(settings, prefix)
    update = {"prefix": prefix, "partitions": settings.partitions if partitions is None else partitions}
    return FactWriter(settings.model_copy(update=update), source)


def require_prefix(settings: Settings, prefix: str) -> None:
    """Raises TargetError if topics with this prefix are invalid, or are those that are read."""
    if prefix == settings.prefix:
        raise TargetError(f"--to-prefix {prefix!r} is where the facts are; choose another one")
    require_possible(prefix)


def require_possible(prefix: str) -> None:
    """Raises TargetError when no topic can have this prefix."""
    try:
        _PREFIX.validate_python(prefix)
    except ValidationError:
        raise TargetError(f"--to-prefix {prefix!r}: up to 80 letters, digits, dots, dashes and underscores") from None


_closure = unchecked(Closure)


def _decisions(rollout: Rollout) -> tuple[Closure, Closure]:
    return _closure(settled=rollout.settled), _closure(closed=rollout.closed)
