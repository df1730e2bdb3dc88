"""A cursor: one topic of one partition, pulled record by record. It reads ahead by no more than its reader's blocks."""

from collections.abc import Iterator

from streams.log.reader import LogReader
from streams.log.record import LogRecord, Span
from streams.log.topics import Topic


class Cursor:
    """Pulls the records of a span. Close it when it is not read to its end."""

    def __init__(self, log: LogReader, topic: Topic, partition: int, span: Span) -> None:
        self.start = self.position = span.start
        """`position` is the offset that comes next."""
        self._end = span.end
        self._blocks = log.blocks(topic, partition, span)
        self._held: Iterator[LogRecord] = iter(())

    @property
    def share(self) -> float:
        """How much of the span was read, 0..1."""
        return (self.position - self.start) / max(1, self._end - self.start)

    async def next(self) -> LogRecord | None:
        """The next record; None at the end."""
        while (record := next(self._held, None)) is None:
            block = await anext(self._blocks, None)
            if block is None:
                self.position = max(self.position, self._end)  # the last offsets of a topic may have no records
                return None
            self._held = iter(block)
        self.position = record.offset + 1
        return record

    async def close(self) -> None:
        """Stop reading ahead."""
        await self._blocks.aclose()
