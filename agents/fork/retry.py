"""How long to wait before a model is asked again: the service's value, else longer each time, with jitter so that
branches that failed together do not retry together. No chance in it: the spread is a function of who waits.
"""

from hashlib import sha256

ATTEMPTS = 6
"""Attempts for a turn before the branch is given up."""

FIRST_S = 0.5
LONGEST_S = 60.0


def wait_s(failures: int, after_s: float | None, who: str, scale: float = 1.0) -> float:
    """Seconds until the next attempt, by the number of failures."""
    spread = 0.75 + sha256(f"{who}/{failures}".encode()).digest()[0] / 512
    if after_s is not None:
        return min(max(0.0, after_s), LONGEST_S) + scale * 0.1 * spread
    return scale * min(FIRST_S * 2.0 ** (failures - 1), LONGEST_S) * spread
