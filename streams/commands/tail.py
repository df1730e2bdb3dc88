"""`braid tail`: a topic's records, as they come."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from streams.commands.numbers import number

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.log.record import Placed
    from streams.log.topics import Topic

Flag = Parameter(negative="")


def tail(
    topic: str,
    /,
    *,
    from_beginning: Annotated[bool, Flag] = False,
    limit: Annotated[int | None, number("--limit", 1)] = None,
    rollout: str | None = None,
    no_follow: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Print a topic's records as they come, until Ctrl-C.

    A record that cannot be decoded is shown as such, with the reason, and the rest goes on.

    Example: `braid tail dpo --from-beginning --limit 1 --json`

    Parameters
    ----------
    topic
        A topic's name, or a part that only one has: dpo, evidence, votes.
    from_beginning
        Begin with what is there already.
    limit
        End after this many records.
    rollout
        Only records of this rollout.
    no_follow
        Print what is there already, and end.
    json
        Print each record as a JSON object on a line.
    """
    from streams.cluster.config import load
    from streams.views.naming import find_topic

    settings = load()
    found = find_topic(topic, settings.prefix)
    beginning = from_beginning or no_follow
    try:
        asyncio.run(_tail(settings, found, rollout, limit, beginning=beginning, following=not no_follow, as_json=json))
    except KeyboardInterrupt:
        return  # how following ends


async def _tail(
    settings: "Settings",
    topic: "Topic",
    rollout: str | None,
    limit: int | None,
    *,
    beginning: bool,
    following: bool,
    as_json: bool,
) -> None:
    from streams.log.kafka_reader import KafkaReader, hush
    from streams.views.printing import print_human, print_json

    hush()
    show = print_json if as_json else print_human
    async with KafkaReader(settings) as log:
        log.require(topic)
        if following:
            records: AsyncGenerator[Placed, None] = log.follow(topic, rollout_id=rollout, from_beginning=beginning)
        else:
            records = log.records([topic], rollout_id=rollout)
        count = 0
        async with aclosing(records) as coming:
            async for placed in coming:
                sys.stdout.write(await show(log, placed) + "\n")
                sys.stdout.flush()
                count += 1
                if count == limit:
                    return
