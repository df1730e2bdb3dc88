"""Replay of partitions: by the members of a crew, or in this process."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from streams.cluster.config import Settings
from streams.cluster.signing_keys import signing_key
from streams.jobs.crew.task import Task
from streams.jobs.crew.workplace import Moved, Workplace
from streams.jobs.errors import ReplayError
from streams.jobs.replay.partition_job import Job, Result, replay_partition
from streams.jobs.targets import LogDirectory, NewTopics, Nowhere, Target, discard_half, topic_writer
from streams.log.reader import LogReader
from streams.log.readers import reader_of


def replay_task(job: Job, settings: Settings) -> Task:
    """Return the task of a crew."""
    where = {"kafka": settings.kafka, "registry": settings.registry, "prefix": settings.prefix}
    return Task(job, where, Result, ReplayError, lambda: ReplayPlace(job, settings))


class ReplayPlace(Workplace[Result]):
    """Reads the log of a job, and writes to its target."""

    def __init__(self, job: Job, settings: Settings) -> None:
        self._job = job
        self._key = signing_key(settings) if job.signs else None
        self._log = log_of(job, settings)
        self._target = target_of(job, settings)
        self._stack = AsyncExitStack()

    async def work(self, partition: int, moved: Moved) -> Result:
        """Replay a partition."""
        return await replay_partition(self._log, self._job, partition, self._target, self._key, moved)

    def discard(self, partition: int) -> None:
        """Remove the files of a partition that is not complete."""
        if self._job.out is not None:
            discard_half(self._job.out, partition)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._log)
            await stack.enter_async_context(self._target)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


def log_of(job: Job, settings: Settings) -> LogReader:
    """The log that a job reads."""
    return reader_of(settings, job.directory, unfinished=job.unfinished, tolerant=True)


def target_of(job: Job, settings: Settings) -> Target:
    """The place that the records of a job go to."""
    if job.to_prefix is not None:
        return NewTopics(topic_writer(settings, job.to_prefix, "replay", max(job.partitions, default=0) + 1))
    return Nowhere() if job.out is None else LogDirectory(job.out)


def replay_place(settings: Settings, job: bytes) -> ReplayPlace:
    """Open the workplace of a member."""
    return ReplayPlace(Job.model_validate_json(job), settings)
