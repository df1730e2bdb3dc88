"""`braid dead-letters list`: letters, newest first."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

from streams.commands.console_output import print_json
from streams.commands.dead_letters.letter_log import LetterFlags, letter_log
from streams.commands.numbers import number
from streams.commands.options import Json

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.log.letter_list import DeadLetter, Filters


def list_(
    *,
    flags: LetterFlags = LetterFlags(),
    limit: Annotated[int, number("--limit", 0)] = 50,
    json: Json = False,
) -> None:
    """List dead letters, newest first, and how many there are for each reason.

    Example: `braid dead-letters list --reason undecodable --since 2026-01-31T09:00`

    Parameters
    ----------
    limit
        How many to list; 0 lists all.
    """
    from streams.cluster.config import load
    from streams.log.letter_list import by_reason
    from streams.log.terminal_text import clean
    from streams.views.letter_tables import counts_sheet, letters_sheet
    from streams.views.report import letter_json
    from streams.views.tables import show

    settings = load()
    letters = asyncio.run(_read(settings, flags.filters(settings)))[::-1]
    shown = letters[:limit] if limit else letters
    if json:
        found = {
            "total": len(letters),
            "by_reason": by_reason(letters),
            "letters": [letter_json(each) for each in shown],
        }
        print_json(clean(found))
    elif not letters:
        sys.stdout.write("no dead letters\n")
    else:
        show(letters_sheet(shown))
        if len(letters) > len(shown):
            sys.stdout.write(f"... and {len(letters) - len(shown):,} more (--limit 0 shows all)\n")
        show(counts_sheet(by_reason(letters)))


async def _read(settings: "Settings", filters: "Filters") -> "list[DeadLetter]":
    from streams.log.letter_list import read_letters

    async with letter_log(settings) as log:
        return await read_letters(log, filters)
