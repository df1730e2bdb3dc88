"""The words of a rollout's opening that reach a model or a dataset: its system prompt and its tools, without their secrets."""

from typing import NamedTuple

from agents.redaction.redaction import Counts, redact, redact_json
from schemas.jsontext import compact, parse
from schemas.lifecycle import RolloutOpened


class CleanedOpening(NamedTuple):
    """An opening, and the counts of what was removed from it."""

    opened: RolloutOpened | None
    counts: Counts = ()


def cleaned_opening(opened: RolloutOpened | None, *, redacting: bool) -> CleanedOpening:
    """The opening as it may be shown. Its task is redacted with each branch, which may have another one."""
    if opened is None or not redacting:
        return CleanedOpening(opened)
    prompt, tools = redact(opened.system_prompt or ""), redact_json(parse(opened.tools))
    if not prompt.counts and not tools.counts:
        return CleanedOpening(opened)
    counts: dict[str, int] = {}
    for kind, count in (*prompt.counts, *tools.counts):
        counts[kind] = counts.get(kind, 0) + count
    update = {"system_prompt": prompt.text or None, "tools": compact(tools.value)}
    return CleanedOpening(opened.model_copy(update=update), tuple(sorted(counts.items())))
