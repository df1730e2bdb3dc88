"""Partitions of a job, processed by a crew: each process takes the next one. Without a crew, the partitions are
processed here.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from schemas.errors import BraidError
from streams.cluster.garbage_collector import YOUNG_OBJECTS_OF_JOBS, tune_gc
from streams.jobs.crew.crew import Crew, Member
from streams.jobs.crew.workplace import Moved, Workplace


class Task(NamedTuple):
    """A job that members of a crew or this process can run."""

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
        tune_gc(YOUNG_OBJECTS_OF_JOBS)
        async with task.here() as place:
            while waiting:
                done(await place.work(waiting.pop(), moved))
        return
    few_left = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            for number, member in enumerate(members):
                is_spare = number >= crew.size
                group.create_task(_feed(member, task, waiting, done, moved, crew.size, few_left, is_spare=is_spare))
    except ExceptionGroup as failed:  # the others were stopped because of the first
        raise failed.exceptions[0] from None


async def _feed(
    member: Member, task: Task, waiting: list[int], done: Callable[[Any], None], moved: Moved, few: int, few_left: asyncio.Event,
    *, is_spare: bool,
) -> None:  # fmt: skip
    """Keep one process busy; a spare one as soon as at most `few` partitions are left."""
    finished = False
    try:
        begun = orjson.dumps(task.settings) + b"\n" + task.job.model_dump_json().encode() + b"\n"
        if is_spare:
            await few_left.wait()
        while waiting:
            if len(waiting) <= few:
                few_left.set()
            partition = waiting.pop()
            answer = await member.ask(begun + b"%d" % partition, moved)
            if "result" not in answer:
                raise task.failure(f"partition {partition}: {answer.get('error') or member.fate()}")
            done(task.result.model_validate(answer["result"]))
            begun = b""
        finished = True
    finally:
        await member.end(at_once=not finished)
