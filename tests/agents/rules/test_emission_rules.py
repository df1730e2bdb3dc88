"""The table of rules by emission version."""

from agents.rules.emission_rules import RULES
from schemas.emission import NEWEST_VERSION


def test_every_emission_version_has_its_rules() -> None:
    """A configuration may name any version up to the newest."""
    assert list(RULES) == list(range(1, NEWEST_VERSION + 1))


def test_version_1_has_none_of_the_rules() -> None:
    """Version 1 is released: a rule that came later never holds for it."""
    assert not any(RULES[1])
