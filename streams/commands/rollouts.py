"""`braid rollouts`: lists the rollouts and their state."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

from schemas.errors import BraidError
from streams.commands.console_output import print_json
from streams.commands.numbers import number
from streams.commands.options import Flag, Json

if TYPE_CHECKING:
    from streams.cluster.config import Settings

REFRESH_S = 1.0


class WatchError(BraidError):
    """Watching was asked for in a way that makes no sense."""


def rollouts(
    *,
    status: str | None = None,
    limit: Annotated[int, number("--limit", 0)] = 50,
    json: Json = False,
    watch: Annotated[bool, Flag] = False,
) -> None:
    """List rollouts, newest first, with their state in the worker's view.

    A count with a plus belongs to a rollout that has not closed: there may be more by now, see `braid show`.

    Example: `braid rollouts --status open --watch`

    Parameters
    ----------
    status
        Only those that are open, settling, settled, closing, closed or broken.
    limit
        How many to list; 0 lists all.
    watch
        Refresh until Ctrl-C.
    """
    from streams.cluster.config import load
    from streams.log.kafka_reader import hush

    if watch and json:
        raise WatchError("--watch is for people and --json for programs; use one of them")
    settings = load()
    hush()
    if not watch:
        asyncio.run(_list(settings, status, limit, as_json=json))
        return
    try:
        asyncio.run(_watch(settings, status, limit))
    except KeyboardInterrupt:
        return  # how watching ends


async def _list(settings: "Settings", status: str | None, limit: int, *, as_json: bool) -> None:
    from streams.log.kafka_reader import KafkaReader, View
    from streams.log.terminal_text import clean
    from streams.log.topics import FACTS
    from streams.log.view_rows import newest_first
    from streams.views.progress import progress
    from streams.views.rollout_table import listing, nothing_yet
    from streams.views.tables import show

    with progress() as say:
        async with KafkaReader(settings, say) as log:
            view = View(log)
            await view.refresh()
            nothing = "" if view.rows else nothing_yet(log.place, await log.count(FACTS))
    rows = newest_first(view.rows, status)
    if as_json:
        shown = rows if limit <= 0 else rows[:limit]
        found = {"total": len(view.rows), "matching": len(rows), "rollouts": [row.model_dump() for row in shown]}
        print_json(clean(found))
    elif not view.rows:
        sys.stdout.write(nothing + "\n")
    else:
        show(listing(rows, limit, view.rows.values()))


async def _watch(settings: "Settings", status: str | None, limit: int) -> None:
    from rich.live import Live
    from rich.text import Text

    from streams.log.kafka_reader import KafkaReader, View
    from streams.log.topics import FACTS
    from streams.log.view_rows import newest_first
    from streams.views.rollout_table import listing, nothing_yet
    from streams.views.tables import console

    out = console()
    async with KafkaReader(settings) as log:
        view = View(log)
        with Live(Text("reading ..."), console=out, auto_refresh=False) as live:
            while True:
                await view.refresh()
                room = max(1, out.height - 5) if out.is_terminal else limit
                rows = newest_first(view.rows, status)
                if view.rows:
                    live.update(
                        listing(rows, min(limit, room) if limit > 0 else room, view.rows.values()), refresh=True
                    )
                else:
                    live.update(Text(nothing_yet(log.place, await log.count(FACTS))), refresh=True)
                await asyncio.sleep(REFRESH_S)
