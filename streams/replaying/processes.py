"""Partitions on several processes: each takes the next one that is left, and answers in JSON lines.

A child is a program of ours of its own: it gets the job on standard input, then partition numbers, and ends when its input
ends, also in the middle of a partition: nothing runs on, or is left half, when the parent is killed.
"""

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable

import orjson

from streams.collector import calm_collector
from streams.config import Settings, load
from streams.looking.kafka import hush
from streams.replaying.job import Job, Result, replay_partition
from streams.replaying.logs import ArchiveLog, ClusterLog, FactLog, ReplayError
from streams.replaying.targets import Files, Nowhere, Target, Topics, discard_half
from streams.signing import signing_key

LINE_BYTES = 64 * 1024 * 1024
SAY_EVERY = 2000

KEEPING = {
    "MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TOP_PAD_": "16777216",
}  # fmt: skip
"""Lets a child keep the memory of one block for the next, where the C library is GNU's: else the system takes it back and gives it
again, page by page, some thousand times a second."""

Done = Callable[[Result], None]
Moved = Callable[[int], None]
"""So many facts were read since the last time."""


async def run_partitions(
    job: Job, settings: Settings, partitions: Iterable[int], processes: int, done: Done, moved: Moved
) -> None:
    """Replay partitions, each by one process; `done` gets every result as it comes."""
    # The largest first: a small one at the end leaves nobody waiting for long.
    waiting = sorted(partitions, key=job.facts_of)
    target = _target(job, settings)
    await target.prepare()
    if processes <= 1:
        calm_collector()
        async with log_of(job, settings) as log, target:
            while waiting:
                done(await _replay(job, settings, log, target, waiting.pop(), moved))
        return
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(processes, len(waiting))):
                group.create_task(_feed(job, settings, waiting, done, moved))
    except ExceptionGroup as failed:  # the others were stopped because of the first
        raise failed.exceptions[0] from None


async def _feed(job: Job, settings: Settings, waiting: list[int], done: Done, moved: Moved) -> None:
    """Keep one child busy."""
    environment = KEEPING | os.environ | {
        "BRAID_KAFKA": settings.kafka, "BRAID_REGISTRY": settings.registry, "BRAID_PREFIX": settings.prefix,
    }  # fmt: skip
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "streams.replaying.processes",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment, limit=LINE_BYTES,
        process_group=0,  # the terminal's Ctrl-C is for the parent
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(job.model_dump_json().encode() + b"\n")
        while waiting:
            partition = waiting.pop()
            child.stdin.write(b"%d\n" % partition)
            await child.stdin.drain()
            while "moved" in (answer := orjson.loads(await child.stdout.readline() or b"{}")):
                moved(answer["moved"])
            if "result" not in answer:
                raise ReplayError(f"partition {partition}: {answer.get('error', 'its process ended without a word')}")
            done(Result.model_validate(answer["result"]))
        child.stdin.close()
        await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def log_of(job: Job, settings: Settings) -> FactLog:
    """The log that a job reads."""
    return ClusterLog(settings) if job.directory is None else ArchiveLog(job.directory)


def _target(job: Job, settings: Settings) -> Target:
    if job.to_prefix is not None:
        return Topics(settings, job.to_prefix, max(job.partitions, default=0) + 1)
    return Nowhere() if job.out is None else Files(job.out)


async def _replay(job: Job, settings: Settings, log: FactLog, target: Target, partition: int, moved: Moved) -> Result:
    key = signing_key(settings) if job.sign and job.evidence else None
    return await replay_partition(log, job, partition, target, key, moved)


async def _child() -> None:
    settings = load()
    read = asyncio.StreamReader(limit=LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(read), sys.stdin)
    if not (first := await read.readline()):
        return
    job, under_way = Job.model_validate_json(first), list[int]()
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
    calm_collector()
    hush()
    try:
        asyncio.run(_child())
    except Exception as error:  # noqa: BLE001 - said to the parent, which tells the user
        _answer({"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)


if __name__ == "__main__":
    main()
