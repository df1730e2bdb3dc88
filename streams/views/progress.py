"""Progress on standard error: a bar on a terminal, no output elsewhere; or a line for each step."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streams.log.progress import Say, quiet


@contextmanager
def progress() -> Iterator[Say]:
    """Yield a function that shows the current step and its share of completion (0..1)."""
    if not sys.stderr.isatty():  # without a terminal, the code that draws the bar is not imported
        yield quiet
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)

        def say(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        yield say


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Something to call with each step: it gets a line, which ends with the seconds that the step took."""
    began: list[float] = []

    def end() -> None:
        if began:
            sys.stderr.write(f" {time.monotonic() - began.pop():.0f} s\n")
            sys.stderr.flush()

    def say(step: str) -> None:
        end()
        sys.stderr.write(step)
        sys.stderr.flush()
        began.append(time.monotonic())

    try:
        yield say
    finally:
        end()
