"""`braid tail`: prints a topic's records as they arrive."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from streams.commands.numbers import number
from streams.commands.options import Flag, Flags

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.log.record import Placed
    from streams.log.topics import Topic


@dataclass(frozen=True, kw_only=True)
class TailFlags(Flags):
    """The options of `braid tail`."""

    from_beginning: Annotated[bool, Flag] = False
    """Begin with the existing records."""
    limit: Annotated[int | None, number("--limit", 1)] = None
    """End after this many records."""
    rollout: str | None = None
    """Only records of this rollout."""
    no_follow: Annotated[bool, Flag] = False
    """Print the existing records, and end."""
    json: Annotated[bool, Flag] = False
    """Print each record as a JSON object on a line."""


def tail(topic: str, /, *, flags: TailFlags = TailFlags()) -> None:
    """Print a topic's records as they arrive, until Ctrl-C.

    A record that cannot be decoded is shown as such, with the reason, and the next ones follow.

    Example: `braid tail dpo --from-beginning --limit 1 --json`

    Parameters
    ----------
    topic
        A topic's name, or a part that only one has: dpo, evidence, votes.
    """
    from streams.cluster.config import load
    from streams.views.topic_name import find_topic

    settings = load()
    found = find_topic(topic, settings.prefix)
    try:
        asyncio.run(_tail(settings, found, flags))
    except KeyboardInterrupt:
        return  # how following ends


async def _tail(settings: "Settings", topic: "Topic", flags: TailFlags) -> None:
    from streams.log.kafka_reader import KafkaReader, hush
    from streams.views.record_line import human_line, json_line

    hush()
    show = json_line if flags.json else human_line
    async with KafkaReader(settings) as log:
        log.require(topic)
        records: AsyncGenerator[Placed, None]
        if flags.no_follow:
            records = log.records([topic], rollout_id=flags.rollout)
        else:
            records = log.follow(topic, rollout_id=flags.rollout, from_beginning=flags.from_beginning)
        count = 0
        async with aclosing(records) as coming:
            async for placed in coming:
                sys.stdout.write(await show(log, placed) + "\n")
                sys.stdout.flush()
                count += 1
                if count == flags.limit:
                    return
