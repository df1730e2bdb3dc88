"""The topics of one partition read side by side, in step with their times.

The fold does not care how topics interleave; memory does. What is read of any topic is at most a block ahead of the slowest
one, so a rollout's facts come close together and only open rollouts are held.
"""

from collections.abc import AsyncIterator, Mapping
from operator import itemgetter

from streams.log_writer import LogRecord
from streams.topics import Topic

_TIME = itemgetter(LogRecord._fields.index("at"))


async def in_step(
    sources: Mapping[Topic, AsyncIterator[list[LogRecord]]],
) -> AsyncIterator[tuple[Topic, list[LogRecord]]]:
    """Records of all topics, each topic in its order, some at a time."""
    running = dict(sources)
    held: dict[Topic, list[LogRecord]] = {}
    while True:
        for topic in [each for each in running if each not in held]:
            block = await anext(running[topic], None)
            if block is None:
                del running[topic]
            else:
                held[topic] = block
        if not held:
            return
        # What is not newer than the newest record held of every topic goes on; one topic is used up by that, at least.
        reached = min(max(map(_TIME, block)) for block in held.values())
        for topic in list(held):
            block = held[topic]
            ready = next((at for at, time in enumerate(map(_TIME, block)) if time > reached), len(block))
            if ready:
                yield topic, block[:ready]
            if ready == len(block):
                del held[topic]
            else:
                held[topic] = block[ready:]
