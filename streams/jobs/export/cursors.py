"""The cursors of an export: all topics of one partition, from the checkpoint to their current ends.

All records of a rollout have one partition number, so one partition is read at a time. Each topic is read only as
far as the rollout at hand needs: memory does not grow with the log.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from streams.log.cursor import Cursor
from streams.log.reader import LogReader, LookError
from streams.log.record import NOTHING, Span
from streams.log.topics import LIFECYCLE, Topic


@asynccontextmanager
async def partition_cursors(
    log: LogReader, partition: int, topics: Sequence[Topic], starts: Mapping[str, int]
) -> AsyncGenerator[dict[Topic, Cursor], None]:
    """Open the topics of a partition at offsets. Raises LookError when the log ends before them: it is another log."""
    for topic in topics:
        log.require(topic)
    held = await log.spans(topics)
    async with AsyncExitStack() as stack:
        opened: dict[Topic, Cursor] = {}
        for topic in topics:
            span = held[topic.name].get(partition, NOTHING)
            # Openings are read again for every export. Files are read in full: a new run replaces them.
            start = starts.get(topic.name, 0) if log.grows and topic is not LIFECYCLE else 0
            if start > span.end:
                raise LookError(
                    f"{log.place}: {topic.name}/{partition} ends at {span.end}, the checkpoint stands at {start}: this is "
                    "not the log that was exported from; export to another directory, or with --from-beginning"
                )
            first = max(start, span.start) if log.grows else 0
            opened[topic] = Cursor(log, topic, partition, Span(first, span.end))
            stack.push_async_callback(opened[topic].close)
        yield opened
