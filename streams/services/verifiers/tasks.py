"""Which task a rollout was forked from: its label names a digest, and only a task with that digest counts.

The openings of rollouts are read from the log on demand, each once. A rollout without the label was not forked by
us: another verifier's.
"""

from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import structlog

from agents.fork.task import Task, TaskError
from agents.fork.task_adapter import SAMPLES, load_task
from schemas.errors import DecodeError
from schemas.lifecycle import Lifecycle
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of
from streams.log.kafka_reader import KafkaReader
from streams.log.record import Span
from streams.log.topics import LIFECYCLE

REMEMBERED = 50_000
"""Openings kept in memory; an older rollout's branches have long ended."""

log = structlog.get_logger()


class Origin(NamedTuple):
    """The opening of a rollout as far as it concerns its task."""

    name: str
    digest: str


class Tasks:
    """The pristine tasks of this machine, by digest."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._folders = (SAMPLES, *folders)
        self._known: dict[str, Task] = {}

    def find(self, origin: Origin) -> Task | str:
        """The task, or why it cannot be used."""
        if origin.digest not in self._known:
            self._read()
        return self._known.get(origin.digest) or (
            f"task {origin.name} with digest {origin.digest[:12]} is not in "
            f"{', '.join(map(str, self._folders))}; set verifier.tasks (BRAID_VERIFIER__TASKS), or bring the task back to what it was"
        )

    def _read(self) -> None:
        for folder in self._folders:
            for path in sorted(folder.glob("*/task.toml")):
                try:
                    task = load_task(path.parent)
                except TaskError as error:
                    log.warning("not a task", error=str(error))
                else:
                    self._known[task.digest] = task


class Openings:
    """The openings of rollouts, read forward once per partition."""

    def __init__(self, settings: Settings, look_back_ms: int) -> None:
        self._settings = settings
        self._look_back_ms = look_back_ms
        self._read_to: dict[int, int] = {}
        self._origins: OrderedDict[str, Origin | None] = OrderedDict()

    async def origin(self, rollout_id: str, at: int) -> Origin | None:
        """The origin of a rollout; None if its opening does not record one. `at`: a time when it was open."""
        if rollout_id not in self._origins:
            await self._read(partition_of(rollout_id, self._settings.partitions), at - self._look_back_ms)
        # A rollout with branches and no opening by now has none: it is not searched for again.
        return self._origins.setdefault(rollout_id, None)

    async def _read(self, partition: int, since: int) -> None:
        async with KafkaReader(self._settings) as kafka:
            spans = await kafka.spans([LIFECYCLE], since=None if partition in self._read_to else max(0, since))
            held = spans[LIFECYCLE.name][partition]
            span = Span(max(held.start, self._read_to.get(partition, 0)), held.end)
            async for placed in kafka.read({LIFECYCLE.name: {partition: span}}):
                try:
                    found = await kafka.decode(placed)
                except DecodeError:
                    continue
                if isinstance(found, Lifecycle) and found.opened is not None:
                    self._take(found)
            self._read_to[partition] = span.end

    def _take(self, found: Lifecycle) -> None:
        assert found.opened is not None
        labels, rollout_id = found.opened.labels, found.opened.rollout_id
        ours = "task" in labels and "task_digest" in labels
        self._origins.setdefault(rollout_id, Origin(labels["task"], labels["task_digest"]) if ours else None)
        while len(self._origins) > REMEMBERED:
            self._origins.popitem(last=False)
