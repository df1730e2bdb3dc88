"""The main loop of a member of a crew: a job, then partition numbers, on one pipe; answers in JSON lines on another.

A member ends when its input ends, even during a partition: so no process and no partial file is left when the process
that started it is killed.
"""

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable
from functools import partial
from io import FileIO
from typing import Any

import orjson

from streams.cluster.config import Settings, load
from streams.jobs.crew.workplace import Workplace
from streams.log.durable_files import problem_of
from streams.log.kafka_reader import hush

LINE_BYTES = 64 * 1024 * 1024

SAY_EVERY = 2000

Begin = Callable[[Settings, bytes], Workplace[Any]]
"""Opens a workplace for a job, which comes as JSON."""


def serve(begin: Begin, questions: int, answers: int) -> None:
    """Run a member until the pipe of its questions ends; an error is an answer."""
    hush()
    answer = partial(_answer, answers)
    try:
        asyncio.run(_serve(begin, questions, answer))
    except OSError as error:
        answer({"error": problem_of(error)})
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - said to the parent, which tells the user
        answer({"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)


async def _serve(begin: Begin, questions: int, answer: Callable[[object], None]) -> None:
    read = asyncio.StreamReader(limit=LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(read), FileIO(questions, "r"))
    if not (settings := await read.readline()):
        return
    place, under_way = begin(load(**orjson.loads(settings)), await read.readline()), list[int]()
    threading.Thread(target=_end_with_parent, args=(questions, place, under_way), daemon=True).start()
    unsaid = 0

    def moved(facts: int) -> None:
        nonlocal unsaid
        unsaid += facts
        if unsaid >= SAY_EVERY:
            answer({"moved": unsaid})
            unsaid = 0

    async with place:
        while line := await read.readline():
            under_way.append(int(line))
            result = await place.work(int(line), moved)
            under_way.clear()
            answer({"result": result.model_dump(mode="json")})


def _end_with_parent(questions: int, place: Workplace[Any], under_way: list[int]) -> None:
    """End if the pipe closes during a partition: the process that would read the answer has ended."""
    hanging = select.poll()
    hanging.register(questions, 0)
    hanging.poll()
    if under_way:
        place.discard(under_way[0])
        os._exit(1)


def _answer(answers: int, plain: object) -> None:
    """Write an answer to the parent; unbuffered, because a buffer would be written again at the end when no process
    reads it.
    """
    said = memoryview(orjson.dumps(plain) + b"\n")
    try:
        while said:
            said = said[os.write(answers, said) :]
    except BrokenPipeError:
        sys.exit(1)
