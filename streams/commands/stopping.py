"""What ends commands that compute and write: Ctrl-C and SIGTERM at once, a disk that refuses with a plain word."""

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


@contextmanager
def disk_said_plainly() -> Iterator[None]:
    """A directory that cannot be written, or is full, is no fault of ours: it is named, without a traceback."""
    from streams.replaying.logs import ReplayError

    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise ReplayError(f"{where}{error.strerror or error}; is there room, and may we write there?") from None


def _stop(number: int, _frame: object) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
