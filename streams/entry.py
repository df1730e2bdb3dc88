"""The entry point of the command line: Ctrl-C ends the program with exit code 130, however early it comes.

Python reports an interrupted import with a traceback. This module therefore imports nothing of ours until it has
replaced the handler of SIGINT; the packages it is in import next to nothing themselves.
"""

import os

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells report it."""

try:
    import signal
    import sys
    from collections.abc import Callable
    from importlib.machinery import ExtensionFileLoader
    from types import FrameType
    from typing import Any
except KeyboardInterrupt:
    os._exit(INTERRUPTED)


def main() -> None:
    """Import the command line and run it. SIGINT stays ignored where the caller ignores it."""
    guarded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if guarded:
            _guard()
        from streams.cli import main as command

        if guarded:  # from here on there is something to clean up, and asyncio needs Python's own handler
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        if guarded:  # only Python's own shutdown is left
            signal.signal(signal.SIGINT, _leave)


def _guard() -> None:
    signal.signal(signal.SIGINT, _leave)
    sys.unraisablehook = _raise_again
    # orjson crashes, and others lose the interrupt, if it arrives while an extension module is initialised.
    for step in ("create_module", "exec_module"):
        setattr(ExtensionFileLoader, step, _uninterrupted(getattr(ExtensionFileLoader, step)))


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End the process at once. Used only while there is nothing to clean up."""
    os._exit(INTERRUPTED)


def _uninterrupted(load: Callable[..., Any]) -> Callable[..., Any]:
    """A step of loading an extension module, during which SIGINT waits."""

    def loaded(*given: Any) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return load(*given)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return loaded


def _raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Raise an interrupt again that came in a destructor or a callback: Python would print it there and continue."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    else:
        sys.__unraisablehook__(unraisable)
