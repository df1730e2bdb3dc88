"""Processes that replay partitions. They are started before anything is looked at: it takes them as long to load as that takes.

A member is a program of ours of its own (`processes.py`): it gets the job on standard input, then partition numbers, answers in
JSON lines, and ends when its input ends. Nothing is imported here that takes long: who starts a crew first waits for none.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self

import orjson

LINE_BYTES = 64 * 1024 * 1024

KEEPING = {
    "MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TOP_PAD_": "16777216",
}  # fmt: skip
"""Lets a member keep the memory of one block for the next, where the C library is GNU's: else the system takes it back and gives it
again, page by page, some thousand times a second."""

Moved = Callable[[int], None]
"""So many facts were read since the last time."""


class Member:
    """One process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streams.jobs.replay.processes"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=KEEPING | os.environ, bufsize=0,
            process_group=0,  # the terminal's Ctrl-C is for whoever started it
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
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
        # A pipe holds most jobs; a longer one waits here until the member has loaded.
        left = memoryview(line + b"\n")
        while left:
            left = left[self._input.write(left) or 0 :]

    async def end(self, *, at_once: bool) -> None:
        """Let it end, by itself or at once, and wait until it has."""
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
        self._process.wait()
        self._output.close()


class Crew:
    """So many processes; none, where one is enough: whoever asks for one works itself."""

    def __init__(self, size: int) -> None:
        self._size = size if size > 1 else 0
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for _ in range(self._size):
                self.members.append(Member())
                started.callback(self.members[-1].kill)
            self._started = started.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._started.close()
