"""Partitions of a job, worked on by the processes of a crew: each takes the next one that is left. Without a crew, here."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

import orjson
from pydantic import BaseModel

from schemas.errors import BraidError
from streams.cluster.garbage_collector import tune_gc
from streams.jobs.crew.crew import Crew, Member, Moved

Found = TypeVar("Found", bound=BaseModel)
"""The result of a partition."""


class Workplace(ABC, Generic[Found]):
    """Everything that one process needs to work on partitions, one after the other."""

    @abstractmethod
    async def work(self, partition: int, moved: Moved) -> Found:
        """Work on a partition; its files are complete when this returns."""

    def discard(self, partition: int) -> None:
        """Remove the files of a partition that is not complete; called when the process ends in the middle of it."""
        del partition

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class Task(NamedTuple):
    """The same job for members of a crew and for this process."""

    job: BaseModel
    settings: dict[str, Any]
    """Settings that members cannot read from the configuration."""
    result: type[BaseModel]
    failure: type[BraidError]
    here: Callable[[], Workplace[Any]]
    """Opens a workplace in this process."""


async def run_partitions(crew: Crew, task: Task, waiting: list[int], done: Callable[[Any], None], moved: Moved) -> None:
    """Work on partitions, the last of `waiting` first; `done` gets every result as it comes.

    Raises the error of the task, `failure`, when a partition fails or its process ends.
    """
    members = crew.members[: len(waiting)]
    if not members:
        tune_gc()
        async with task.here() as place:
            while waiting:
                done(await place.work(waiting.pop(), moved))
        return
    try:
        async with asyncio.TaskGroup() as group:
            for member in members:
                group.create_task(_feed(member, task, waiting, done, moved))
    except ExceptionGroup as failed:  # the others were stopped because of the first
        raise failed.exceptions[0] from None


async def _feed(member: Member, task: Task, waiting: list[int], done: Callable[[Any], None], moved: Moved) -> None:
    """Keep one process busy."""
    finished = False
    try:
        begun = orjson.dumps(task.settings) + b"\n" + task.job.model_dump_json().encode() + b"\n"
        while waiting:
            partition = waiting.pop()
            answer = await member.ask(begun + b"%d" % partition, moved)
            if "result" not in answer:
                raise task.failure(f"partition {partition}: {answer.get('error') or member.fate()}")
            done(task.result.model_validate(answer["result"]))
            begun = b""
        finished = True
    finally:
        await member.end(at_once=not finished)
