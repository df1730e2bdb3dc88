"""Processes that work on partitions, forked from this one once everything is imported: they need not load it again.

A member gets the job on a pipe, then partition numbers, answers in JSON lines, and ends when its pipe ends
(`member_process.py` has its main loop). Members are forked before this process has threads or an event loop.
"""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from io import FileIO
from types import TracebackType
from typing import Any, Self

import orjson

from streams.cluster.garbage_collector import YOUNG_OBJECTS_OF_JOBS, tune_gc
from streams.jobs.crew.member_process import LINE_BYTES, Begin, serve
from streams.jobs.crew.workplace import Moved

_FORKED = multiprocessing.get_context("fork")


class Member:
    """One process; `others` are those that were forked before it."""

    def __init__(self, begin: Begin, others: Iterable["Member"]) -> None:
        questions, write = os.pipe()
        read, answers = os.pipe()
        self._input, self._output = FileIO(write, "w"), FileIO(read, "r")
        not_its_own = [file for each in (self, *others) for file in (each._input, each._output)]
        self._process = _FORKED.Process(target=_work, args=(begin, questions, answers, not_its_own), daemon=True)
        self._process.start()
        os.close(questions)
        os.close(answers)
        self._answers: asyncio.StreamReader | None = None

    async def ask(self, question: bytes, moved: Moved) -> dict[str, Any]:
        """Say a line, and wait for the answer: empty when the process has ended."""
        if self._answers is None:
            self._answers = asyncio.StreamReader(limit=LINE_BYTES)
            protocol = asyncio.StreamReaderProtocol(self._answers)
            await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, self._output)
        with suppress(BrokenPipeError):  # it has ended: there will be no answer
            self._say(question)
        while "moved" in (answer := orjson.loads(await self._answers.readline() or b"{}")):
            moved(answer["moved"])
        found: dict[str, Any] = answer
        return found

    def _say(self, line: bytes) -> None:
        # A pipe buffers most jobs; a longer one waits here until the member has loaded.
        left = memoryview(line + b"\n")
        while left:
            left = left[self._input.write(left) or 0 :]

    def fate(self) -> str:
        """Return how it ended without an answer, and what to do about it."""
        self._input.close()
        self._process.join()
        code = self._process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        out_of_memory = " (the system does that when memory runs out: give fewer --processes)" if code == -9 else ""
        return f"its process {how} before it was done{out_of_memory}; run the command again"

    async def end(self, *, at_once: bool) -> None:
        """End it, after its work or at once, and wait until it has ended."""
        if at_once:
            self._process.kill()
        self._input.close()
        if self._answers is not None:
            await self._answers.read()
        self.kill()

    def kill(self) -> None:
        """End it, if it has not ended."""
        self._input.close()
        self._process.kill()
        self._process.join()
        self._output.close()


def _work(begin: Begin, questions: int, answers: int, not_its_own: Iterable[FileIO]) -> None:
    """The life of a member. A pipe ends when the last process that can write to it closes it, so this process closes
    those of the others.
    """
    os.setpgid(0, 0)  # the terminal's Ctrl-C is for the process that forked it
    for file in not_its_own:
        file.close()
    serve(begin, questions, answers)


class Crew:
    """So many processes; none, if one is enough: the caller does the work itself. `begin` opens the workplace of each.

    `spare` ones help only at the end: the last partitions share the processors, so that none is idle while one
    partition is left.
    """

    def __init__(self, size: int, begin: Begin, spare: int = 0) -> None:
        self.size = size if size > 1 else 0
        self._spare = spare if size > 1 else 0
        self._begin = begin
        self.members: list[Member] = []
        """Spare members last."""

    def __enter__(self) -> Self:
        if self.size:
            tune_gc(YOUNG_OBJECTS_OF_JOBS)
        with ExitStack() as started:
            for _ in range(self.size + self._spare):
                self.members.append(Member(self._begin, self.members))
                started.callback(self.members[-1].kill)
            self._started = started.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._started.close()
