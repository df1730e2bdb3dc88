"""The progress callback of everything that is slow."""

from collections.abc import Callable

Say = Callable[[str, float], None]
"""Shows progress: the step, and how much of it is done (0..1)."""


def quiet(_step: str, _share: float) -> None:
    """Show nothing."""
