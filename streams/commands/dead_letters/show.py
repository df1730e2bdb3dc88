"""`braid dead-letters show`: everything about one letter."""

import asyncio
from typing import TYPE_CHECKING

from streams.commands.console_output import print_json
from streams.commands.dead_letters.letter_log import LetterFlags, letter_log, no_letter
from streams.commands.options import Json

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.log.letter_list import Filters
    from streams.log.record import Placed


def show(letter: str, /, *, json: Json = False) -> None:
    """Show a dead letter: its origin, why it did not count, its headers, and a redacted excerpt of its content.

    Example: `braid dead-letters show rollouts.agent-events.v1/3/17`

    Parameters
    ----------
    letter
        Its id, as `list` prints it: topic/partition/offset of the original.
    """
    from streams.cluster.config import load
    from streams.views.letter_page import letter_object, letter_page
    from streams.views.tables import show as print_all

    settings = load()
    found = asyncio.run(_one(settings, LetterFlags().filters(settings, letter)))
    objects = [letter_object(each, decoded) for each, decoded in found]
    if json:
        print_json({"letters": objects})
    else:
        print_all(*map(letter_page, objects))


async def _one(settings: "Settings", filters: "Filters") -> "list[tuple[Placed, dict[str, object] | None]]":
    """Find the letters of an id (one for each reason), with their original decoded where that is possible."""
    from streams.log.letter_list import dead_letter
    from streams.log.topics import DEAD_LETTERS
    from streams.views.letter_page import decoded_original

    found: dict[str, Placed] = {}
    async with letter_log(settings) as log:
        async for placed in log.records([DEAD_LETTERS]):
            if filters.match(letter := dead_letter(placed)):
                found.setdefault(letter.letter.reason, placed)
        if not found:
            raise no_letter(log, filters)
        return [(placed, await decoded_original(log, placed)) for placed in found.values()]
