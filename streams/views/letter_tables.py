"""Tables of dead letters: the list, the counts by reason, and the results of putting them back."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType

from streams.jobs.letter_retry import Outcome
from streams.log.letter_list import DeadLetter
from streams.log.terminal_text import WHOLE, line, moment
from streams.views.layout import sheet


def letters_sheet(letters: Sequence[DeadLetter]) -> RenderableType:
    """A row for each letter."""
    rows = [
        (
            moment(each.at), each.letter.reason, each.letter_id, line(each.rollout_id, WHOLE) or "-", each.size,
            line(each.letter.message, WHOLE) + (f" (x{each.copies})" if each.copies > 1 else ""),
        )
        for each in letters
    ]  # fmt: skip
    columns = ("at (UTC)", "reason", "id", "rollout", "bytes", "message")
    return sheet("", columns, rows, right=("bytes",), limit=len(rows), narrow=columns[:3], spare=("bytes", "rollout"))


def counts_sheet(counts: Mapping[str, int]) -> RenderableType:
    """How many letters there are for each reason."""
    rows = [*((reason, f"{count:,}") for reason, count in counts.items()), ("all", f"{sum(counts.values()):,}")]
    return sheet("Letters by reason", ("reason", "letters"), rows, right=("letters",))


def outcomes_sheet(outcomes: Sequence[Outcome]) -> RenderableType:
    """A row for each letter that was handled."""
    rows = [(each.step, each.letter.letter.reason, each.letter.letter_id, line(each.why)) for each in outcomes]
    return sheet("", ("what", "reason", "id", "why"), rows, narrow=("what", "id"))
