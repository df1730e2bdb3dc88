"""The garbage collector of processes that fold: a fold makes many objects that live a while, and no cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 50_000
"""New objects between two collections of a service: its connections make cycles."""

YOUNG_OBJECTS_OF_JOBS = 200_000
"""The same for a job: with 50,000, useless collections took 5 % of a replay."""


def tune_gc(young: int = YOUNG_OBJECTS) -> None:
    """Tune the garbage collector: freeze imported objects and raise the thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, 20, 20)


@contextmanager
def no_gc() -> Iterator[None]:
    """Pause the garbage collector for a bounded piece of work, and collect afterwards: 4 % of the time of a fold of 8,000 branches."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
