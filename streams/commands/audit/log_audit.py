"""Reading the log for an audit: the log that the options name, with progress."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from streams.commands.options import LogFlags

if TYPE_CHECKING:
    from agents.audit.rollout_facts import RolloutFacts
    from streams.cluster.config import Settings
    from streams.log.progress import Say
    from streams.log.reader import LogReader

Found = TypeVar("Found")


def with_log(source: LogFlags, read: "Callable[[LogReader, Settings, Say], Awaitable[Found]]") -> Found:
    """Open the log, and read."""
    from streams.cluster.config import load
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.views.progress import progress

    settings = load()
    hush()

    async def whole() -> Found:
        with progress() as say:
            async with reader_of(settings, source.from_dir, unfinished=source.unfinished, say=say) as log:
                return await read(log, settings, say)

    return asyncio.run(whole())


def read_facts(source: LogFlags, take: "Callable[[RolloutFacts], None]") -> None:
    """Pass every rollout of the log to an audit."""
    from agents.audit.rollout_facts import facts_of
    from streams.jobs.audit.log_rollouts import log_rollouts

    async def read(log: "LogReader", settings: "Settings", say: "Say") -> None:
        async for rollout in log_rollouts(log, say):
            take(facts_of(rollout, settings.emission))

    with_log(source, read)
