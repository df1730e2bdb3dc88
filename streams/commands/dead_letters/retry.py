"""`braid dead-letters retry`: write letters back to their topics."""

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from streams.commands.console_output import print_json
from streams.commands.dead_letters.letter_log import LetterFlags, letter_log, no_letter
from streams.commands.numbers import number
from streams.commands.options import Flag, Json

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.jobs.letter_retry import Outcome


@dataclass(frozen=True, kw_only=True)
class RetryFlags(LetterFlags):
    """The options of `braid dead-letters retry`; the filters are those of `list`."""

    reason: str | None = None
    """Only letters with this reason."""
    topic: str | None = None
    """Only letters whose original is in this topic."""
    since: str | None = None
    """Only letters written at or after this time (ISO 8601)."""
    limit: Annotated[int | None, number("--limit", 1)] = None
    """Retry at most so many letters, oldest first."""
    dry_run: Annotated[bool, Flag] = False
    """Print what would be done, and write nothing."""
    json: Json = False


def retry(letter: str | None = None, /, *, flags: RetryFlags = RetryFlags()) -> None:
    """Write dead letters back to their topics, each once; late ones never.

    A letter that fails again after it was put back is a new letter, and is put back only when its id is given.

    Example: `braid dead-letters retry --reason undecodable --dry-run`

    Parameters
    ----------
    letter
        A letter's id; or choose by the same filters as `list`, or all of them.
    """
    from streams.cluster.config import load
    from streams.log.terminal_text import clean
    from streams.views.letter_tables import outcomes_sheet
    from streams.views.report import letter_json
    from streams.views.tables import show

    outcomes = asyncio.run(_retry(load(), letter, flags))
    if flags.json:
        plain = [{**letter_json(each.letter), "step": each.step, "why": each.why or None} for each in outcomes]
        print_json(clean({"dry_run": flags.dry_run, "letters": plain}))
    elif not outcomes:
        sys.stdout.write("no dead letters match\n")
    else:
        show(outcomes_sheet(outcomes))
        counts = Counter(each.step for each in outcomes)
        sys.stdout.write("\n" + ", ".join(f"{count:,} {step}" for step, count in counts.items()) + "\n")


async def _retry(settings: "Settings", letter: str | None, flags: RetryFlags) -> "list[Outcome]":
    from streams.jobs.letter_retry import plan, put_back
    from streams.log.letter_list import read_letters

    filters = flags.filters(settings, letter)
    async with letter_log(settings) as log:
        letters = await read_letters(log, filters)
        if letter is not None and not letters:
            raise no_letter(log, filters)
        planned = await plan(log, letters[: flags.limit], again=letter is not None)
        return planned if flags.dry_run else await put_back(log, planned)
