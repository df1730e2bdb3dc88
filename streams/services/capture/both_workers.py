"""The worker of rollouts and the worker of captures in one process; they end together."""

import asyncio
import signal
from contextlib import suppress

from streams.cluster.config import Settings
from streams.services.capture.capture_worker import run_capture_worker
from streams.services.live.live_worker import run_worker


async def run_both(settings: Settings) -> None:
    """Run both until a signal ends them. Raises the error of the first one that failed."""
    stop = asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, RuntimeError):
            running.add_signal_handler(number, stop.set)
    tasks = [
        asyncio.create_task(run_worker(settings, stop=stop)),
        asyncio.create_task(run_capture_worker(settings, stop=stop)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
