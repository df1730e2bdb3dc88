"""The shapes that trainers load, by name; one module for each family."""

from agents.formats import (
    adp,
    atif,
    chat_lines,
    compliance_eval,
    dsse,
    nemo,
    openai,
    rollout_wire,
    sharegpt,
    steps,
    sts,
    tokens,
    trl,
    verl,
)
from agents.formats.limits import within_limits
from agents.formats.shape import Format

FORMATS: dict[str, Format] = {
    each.name: within_limits(each)
    for family in (
        trl,
        openai,
        chat_lines,
        verl,
        tokens,
        nemo,
        sharegpt,
        rollout_wire,
        atif,
        sts,
        adp,
        steps,
        compliance_eval,
        dsse,
    )
    for each in family.FORMATS
}
"""Every format, in the order in which the documentation lists them."""
