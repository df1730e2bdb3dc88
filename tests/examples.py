"""How many examples a property is tried with: a share of what the profile has (tests/conftest.py)."""

from hypothesis import settings


def shares(count: float) -> int:
    """So many times the examples of the profile: for properties that need more, or whose examples are costly."""
    return max(1, round(count * settings.default.max_examples))  # type: ignore[union-attr]
