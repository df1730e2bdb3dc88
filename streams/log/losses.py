"""Known losses of a log, by topic and partition, in words."""

from streams.log.record import Spans

Losses = dict[str, dict[int, str]]
"""Losses by topic (without prefix) and partition."""

Offsets = dict[str, dict[int, int]]
"""One offset by topic and partition."""

NAMED = 3
"""Losses of a partition that are named."""
SEPARATOR = "; "
MORE = "and more"


def add_loss(losses: Losses, name: str, number: int, loss: str) -> None:
    """Note a loss; a loss that is already noted is not repeated."""
    known = losses.setdefault(name, {}).get(number)
    losses[name][number] = loss if known is None else both(known, loss)


def both(known: str, more: str) -> str:
    """Join two reasons; only so many are listed."""
    said = known.split(SEPARATOR)
    if more in said or said[-1] == MORE:
        return known
    return SEPARATOR.join([*said, more if len(said) < NAMED else MORE])


def trimmed(spans: Spans, held: Spans, asked: Offsets) -> Losses:
    """Partitions whose requested beginning is missing: requested by an earlier offset, or by a time before the first
    record.
    """
    losses: Losses = {}
    for name, parts in spans.items():
        for number, span in parts.items():
            there = held.get(name, {}).get(number, span)
            wanted = span.start < span.end or there.start == there.end
            if wanted and span.start == there.start > asked.get(name, {}).get(number, 0):
                add_loss(losses, name, number, f"begins at offset {there.start}")
    return losses
