"""Python's garbage collector, for processes that make many records and few cycles."""

import gc


def collect_seldom() -> None:
    """What is loaded stays; new objects are looked at seldom. Records hold no cycles: nearly all of them go by themselves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
