"""The shapes that trainers load, by name; one module for each family."""

from agents.formats import atif, dsse, nemo, openai, rollout_wire, sharegpt, steps, trl, verl
from agents.formats.shape import Format

FORMATS: dict[str, Format] = {
    each.name: each
    for family in (trl, openai, verl, nemo, sharegpt, rollout_wire, atif, steps, dsse)
    for each in family.FORMATS
}
"""Every format, in the order in which the documentation lists them."""
