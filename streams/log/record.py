"""The record of the log, and the parts of partitions it is read in: the same for Kafka and for files."""

from typing import Any, NamedTuple

from streams.log.topics import Topic


class LogRecord(NamedTuple):
    """One record of the log."""

    offset: int
    at: int
    """Append time, in milliseconds."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def consumed(record: Any) -> LogRecord:
    """Convert a record of a Kafka consumer."""
    return LogRecord(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


class Placed(NamedTuple):
    """A record and its position."""

    topic: Topic
    partition: int
    record: LogRecord

    @property
    def ref(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic.name, self.partition, self.record.offset


class Span(NamedTuple):
    """Part of a partition: offsets from `start` up to `end`, exclusive."""

    start: int
    end: int


NOTHING = Span(0, 0)
EVERYTHING = Span(0, 2**62)

Spans = dict[str, dict[int, Span]]
"""Spans by topic (without prefix) and partition."""
