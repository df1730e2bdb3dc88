"""Processes that work on partitions. They are started before anything is looked at: it takes them as long to load as that takes.

A member runs a module of ours (`member_process.py` has its main loop): it gets the job on standard input, then partition numbers,
answers in JSON lines, and ends when its input ends. Nothing is imported here that takes long to load.
"""

import asyncio
import os
import signal
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

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=KEEPING | os.environ, bufsize=0,
            process_group=0,  # the terminal's Ctrl-C is for the process that started it
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

    def fate(self) -> str:
        """Say how it ended, after it gave no answer, and what to do about it."""
        self._input.close()
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        out_of_memory = " (the system does that when memory runs out: give fewer --processes)" if code == -9 else ""
        return f"its process {how} before it was done{out_of_memory}; run the command again"

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
    """So many processes that run a module; none, where one is enough: the caller does the work itself."""

    def __init__(self, size: int, module: str) -> None:
        self._size = size if size > 1 else 0
        self._module = module
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for _ in range(self._size):
                self.members.append(Member(self._module))
                started.callback(self.members[-1].kill)
            self._started = started.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._started.close()
