"""Partitions on several processes: each takes the next one that is left, and answers in JSON lines.

A member of a crew ends when its input ends, also in the middle of a partition: nothing runs on, or is left half, when whoever
started it is killed.
"""

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable

import orjson

from streams.cluster.config import Settings, load
from streams.cluster.garbage_collector import tune_gc
from streams.cluster.signing_keys import signing_key
from streams.jobs.errors import ReplayError
from streams.jobs.replay.crew import LINE_BYTES, Crew, Member, Moved
from streams.jobs.replay.partition_job import Job, Result, replay_partition
from streams.jobs.targets import LogDirectory, NewTopics, Nowhere, Target, discard_half, topic_writer
from streams.log.durable_files import problem_of
from streams.log.kafka_reader import hush
from streams.log.reader import LogReader
from streams.log.readers import reader_of

SAY_EVERY = 2000

Done = Callable[[Result], None]


async def run_partitions(
    job: Job, settings: Settings, partitions: Iterable[int], crew: Crew, done: Done, moved: Moved
) -> None:
    """Replay partitions, each by one process; `done` gets every result as it comes."""
    # The largest first: a small one at the end leaves nobody waiting for long.
    waiting = sorted(partitions, key=job.facts_of)
    target = _target(job, settings)
    await target.prepare()
    members = crew.members[: len(waiting)]
    if not members:
        tune_gc()
        async with log_of(job, settings) as log, target:
            while waiting:
                done(await _replay(job, settings, log, target, waiting.pop(), moved))
        return
    try:
        async with asyncio.TaskGroup() as group:
            for member in members:
                group.create_task(_feed(member, job, settings, waiting, done, moved))
    except ExceptionGroup as failed:  # the others were stopped because of the first
        raise failed.exceptions[0] from None


async def _feed(member: Member, job: Job, settings: Settings, waiting: list[int], done: Done, moved: Moved) -> None:
    """Keep one process busy."""
    finished = False
    try:
        where = {"kafka": settings.kafka, "registry": settings.registry, "prefix": settings.prefix}
        begun = orjson.dumps(where) + b"\n" + job.model_dump_json().encode() + b"\n"
        while waiting:
            partition = waiting.pop()
            answer = await member.ask(begun + b"%d" % partition, moved)
            if "result" not in answer:
                raise ReplayError(f"partition {partition}: {answer.get('error', 'its process ended without a word')}")
            done(Result.model_validate(answer["result"]))
            begun = b""
        finished = True
    finally:
        await member.end(at_once=not finished)


def log_of(job: Job, settings: Settings) -> LogReader:
    """The log that a job reads."""
    return reader_of(settings, job.directory, unfinished=job.unfinished, tolerant=True)


def _target(job: Job, settings: Settings) -> Target:
    if job.to_prefix is not None:
        return NewTopics(topic_writer(settings, job.to_prefix, "replay", max(job.partitions, default=0) + 1))
    return Nowhere() if job.out is None else LogDirectory(job.out)


async def _replay(job: Job, settings: Settings, log: LogReader, target: Target, partition: int, moved: Moved) -> Result:
    key = signing_key(settings) if job.signs else None
    return await replay_partition(log, job, partition, target, key, moved)


async def _child() -> None:
    read = asyncio.StreamReader(limit=LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(read), sys.stdin)
    if not (where := await read.readline()):
        return
    settings = load(**orjson.loads(where))
    job, under_way = Job.model_validate_json(await read.readline()), list[int]()
    threading.Thread(target=_end_with_parent, args=(job, under_way), daemon=True).start()
    unsaid = 0

    def moved(facts: int) -> None:
        nonlocal unsaid
        unsaid += facts
        if unsaid >= SAY_EVERY:
            _answer({"moved": unsaid})
            unsaid = 0

    async with log_of(job, settings) as log, _target(job, settings) as target:
        while line := await read.readline():
            under_way.append(int(line))
            result = await _replay(job, settings, log, target, int(line), moved)
            under_way.clear()
            _answer({"result": result.model_dump(mode="json")})


def _end_with_parent(job: Job, under_way: list[int]) -> None:
    """End when the input ends in the middle of a partition: whoever would take the answer is gone."""
    hanging = select.poll()
    hanging.register(sys.stdin.fileno(), 0)
    hanging.poll()
    if under_way:
        if job.out is not None:
            discard_half(job.out, under_way[0])
        os._exit(1)


def _answer(plain: object) -> None:
    """Say something to the parent; without a buffer, which would be written again at the end when nobody listens."""
    said = memoryview(orjson.dumps(plain) + b"\n")
    try:
        while said:
            said = said[os.write(sys.stdout.fileno(), said) :]
    except BrokenPipeError:
        sys.exit(1)


def main() -> None:
    """A child process."""
    tune_gc()
    hush()
    try:
        asyncio.run(_child())
    except OSError as error:
        _answer({"error": problem_of(error)})
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - said to the parent, which tells the user
        _answer({"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)


if __name__ == "__main__":
    main()
