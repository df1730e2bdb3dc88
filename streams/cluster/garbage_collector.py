"""Python's garbage collector in processes that fold: a fold makes many objects that live a while and no cycles."""

import gc


def calm_collector() -> None:
    """Let it leave alone what was imported, and look at new objects less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
