"""The address of a record: the same for every writer of the log."""

import pytest

from schemas.events import AgentEvent, AgentEvents
from streams.cluster.connections import partition_of
from streams.log.envelope import Envelope, TooLargeError
from streams.log.headers import cloud_event
from streams.log.letters import letter_of
from streams.log.record import LogRecord
from streams.log.topics import AGENT_EVENTS, DEAD_LETTERS
from streams.log.wire import Codec

EVENT = AgentEvent(trace_id="t", channel="status", event="note", data="{}")
SLICE = AgentEvents(rollout_id="r", branch_index=0, first_seq=0, events=(EVENT,))
LARGE = SLICE.model_copy(update={"events": (EVENT.model_copy(update={"data": "x" * AGENT_EVENTS.max_bytes}),)})


def test_a_record_goes_to_the_partition_of_its_rollout_with_its_id_as_key() -> None:
    found = Envelope(Codec(), "test", 12, "p.").outgoing(SLICE, redacted=True)
    assert (found.topic, found.partition, found.key) == ("p." + AGENT_EVENTS.name, partition_of("r", 12), b"r")
    assert found.value == Codec().encode(SLICE)
    assert found.headers == cloud_event(SLICE, "test", redacted=True)


def test_a_known_partition_is_taken_as_it_is() -> None:
    assert Envelope(Codec(), "test", 12).outgoing(SLICE, partition=99).partition == 99


def test_a_record_over_the_limit_of_its_topic_is_refused_where_there_are_limits() -> None:
    with pytest.raises(TooLargeError, match=f"bytes; {AGENT_EVENTS.name} takes {AGENT_EVENTS.max_bytes}"):
        Envelope(Codec(), "test", 12).outgoing(LARGE)
    assert Envelope(Codec(), "test", 12, is_limited=False).outgoing(LARGE).value == Codec().encode(LARGE)


def test_a_dead_letter_goes_to_the_partition_number_of_its_original_with_its_own_key_and_value() -> None:
    record = LogRecord(7, 5, b"k", b"v", (("h", b"1"),))
    found = letter_of("p.some", 3, record, "late", "too late").outgoing("p.")
    assert found[:4] == ("p." + DEAD_LETTERS.name, 3, b"k", b"v")
    assert found.headers[:2] == [("h", b"1"), ("__braid.errors.topic", b"p.some")]
