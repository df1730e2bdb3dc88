"""The order in which the topics of one partition are read: side by side in step with their times, or in turn.

The fold does not depend on it; memory does. In step, a topic is at most a block ahead of the slowest one, so a
rollout's facts are read close together and only open rollouts are in memory. In turn, with the events last, it is known
whose events are needed.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import accumulate
from operator import itemgetter

from streams.log.reader import LogReader
from streams.log.record import NOTHING, LogRecord, Spans
from streams.log.topics import Topic

_TIME = itemgetter(LogRecord._fields.index("at"))


Blocks = AsyncIterator[list[LogRecord]]
Order = Callable[[Mapping[Topic, Blocks]], AsyncIterator[tuple[Topic, list[LogRecord]]]]


async def partition_blocks(
    log: LogReader, partition: int, topics: Iterable[Topic], spans: Spans, order: Order
) -> AsyncIterator[tuple[Topic, list[LogRecord]]]:
    """The records of topics in one partition, block by block, ready to be decoded."""
    blocks = {
        topic: log.blocks(topic, partition, spans.get(topic.name, {}).get(partition, NOTHING)) for topic in topics
    }
    async for topic, records in order(blocks):
        await log.learn(records)
        yield topic, records


async def in_turn(sources: Mapping[Topic, Blocks]) -> AsyncIterator[tuple[Topic, list[LogRecord]]]:
    """All records of the first topic, then those of the next."""
    for topic, blocks in sources.items():
        async for records in blocks:
            yield topic, records


class _Block:
    """A block of one topic's records with a read cursor."""

    def __init__(self, records: list[LogRecord]) -> None:
        self._records = records
        self._gone = 0
        times: list[int] = list(map(_TIME, records))
        # For each record the newest time so far; times are nearly always in order.
        self._newest = times if times == sorted(times) else list(accumulate(times, max))

    @property
    def newest(self) -> int:
        """The time of the newest record."""
        return self._newest[-1]

    @property
    def used_up(self) -> bool:
        """Whether all records were returned."""
        return self._gone == len(self._records)

    def take(self, until: int) -> list[LogRecord]:
        """The next ones, up to the first that is newer."""
        first, self._gone = self._gone, bisect_right(self._newest, until, lo=self._gone)
        return self._records[first : self._gone]


async def in_step(sources: Mapping[Topic, Blocks]) -> AsyncIterator[tuple[Topic, list[LogRecord]]]:
    """Records of all topics, each topic in its order, some at a time."""
    running = dict(sources)
    held: dict[Topic, _Block] = {}
    while True:
        for topic in [each for each in running if each not in held]:
            records = await anext(running[topic], None)
            if records is None:
                del running[topic]
            else:
                held[topic] = _Block(records)
        if not held:
            return
        # Returns the records that are not newer than the newest buffered record of every topic; this empties at least
        # one topic.
        reached = min(block.newest for block in held.values())
        for topic, block in list(held.items()):
            if ready := block.take(reached):
                yield topic, ready
            if block.used_up:
                del held[topic]
