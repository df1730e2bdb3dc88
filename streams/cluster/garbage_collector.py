"""The garbage collector of processes that fold: a fold makes many objects that live a while, and no cycles."""

import gc


def tune_gc() -> None:
    """Tune the garbage collector: freeze imported objects and raise the thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
