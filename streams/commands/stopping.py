"""Ctrl-C and SIGTERM for commands that compute: they end at once, and clean up behind them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def stoppable() -> Iterator[None]:
    """Within it both signals are exceptions, wherever the code is.

    An event loop of its own would only cancel its task, and a task that computes does not notice that. Whoever has the
    interrupt ignored (a shell, for what runs in its background) keeps it so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _frame: object) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
