"""The shapes that trainers load, by name; one module for each family."""

from agents.formats import (
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
    trl,
    verl,
)
from agents.formats.limits import within_limits
from agents.formats.shape import Format

FORMATS: dict[str, Format] = {
    each.name: within_limits(each)
    for family in (trl, openai, chat_lines, verl, nemo, sharegpt, rollout_wire, atif, sts, steps, compliance_eval, dsse)
    for each in family.FORMATS
}
"""Every format, in the order in which the documentation lists them."""
