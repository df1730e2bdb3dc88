"""Ctrl-C and SIGTERM end commands that compute and write, at once."""

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Found = TypeVar("Found")


def run_stoppable(main: Coroutine[Any, Any, Found]) -> Found:
    """Run to the end, or until Ctrl-C or SIGTERM: either ends it at once, after cleaning up.

    An event loop only cancels its task, and a task that computes does not notice that: there the signal is an exception.
    """
    stopped: list[int] = []
    try:
        return asyncio.run(_watched(main, stopped))
    except asyncio.CancelledError:
        if stopped:
            raise _ended_by(stopped[0]) from None
        raise


async def _watched(main: Coroutine[Any, Any, Found], stopped: list[int]) -> Found:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        if len(stopped) > 1 or asyncio.current_task(loop) is task:
            raise _ended_by(number)
        loop.call_soon_threadsafe(task.cancel)

    with _handled(stop):
        return await main


@contextmanager
def _handled(stop: Any) -> Iterator[None]:
    """Install `stop` as the handler of the signals, except those that the caller ignores."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended_by(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
