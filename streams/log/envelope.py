"""Topic, partition, key, value, headers and size limit of the records that we write: one place for all writers.

Pure: this module neither connects to a broker nor opens files.
"""

from functools import partial
from typing import Final

from agents.facts.fact import rollout_of
from schemas.base import Record
from schemas.errors import BraidError
from streams.cluster.connections import partition_of
from streams.log.headers import cloud_event
from streams.log.outgoing_record import Outgoing
from streams.log.topics import BY_RECORD, Topic
from streams.log.wire import Codec

_outgoing: Final = partial(tuple.__new__, Outgoing)
"""Makes an Outgoing of a tuple, without the Python call that the class makes of it."""


class TooLargeError(BraidError):
    """A record over its topic's limit."""

    def __init__(self, size: int, topic: Topic) -> None:
        super().__init__(f"{size} bytes; {topic.name} takes {topic.max_bytes}")
        self.size = size
        self.limit = topic.max_bytes


class Envelope:
    """Addresses the records of one writer.

    `source` is the part of the product that writes, for the CloudEvents headers. Files take records of any size
    (`is_limited`).
    """

    def __init__(
        self, codec: Codec, source: str, partitions: int, prefix: str = "", *, is_limited: bool = True
    ) -> None:
        self._codec = codec
        self._source = source
        self._partitions = partitions
        self._prefix = prefix
        self._is_limited = is_limited

    def outgoing(
        self,
        record: Record,
        body: bytes | None = None,
        emission: int | None = None,
        *,
        partition: int | None = None,
        redacted: bool = False,
        traceparent: str | None = None,
    ) -> Outgoing:
        """Address a record. Raises TooLargeError when it is over its topic's limit.

        `body` is its Avro body if known, `emission` the emission version of derived records, `partition` that of its
        rollout if known.
        """
        topic = BY_RECORD[type(record)]
        value = self._codec.encode(record, body, emission)
        if self._is_limited and len(value) > topic.max_bytes:
            raise TooLargeError(len(value), topic)
        rollout_id = rollout_of(record)
        headers = cloud_event(record, self._source, traceparent=traceparent, redacted=redacted)
        at = partition_of(rollout_id, self._partitions) if partition is None else partition
        return _outgoing((self._prefix + topic.name, at, rollout_id.encode(), value, headers))
