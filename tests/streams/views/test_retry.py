"""Dead letters on a real Kafka: listed, shown, and put back once."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition

from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_consumer, start_producer
from streams.log.letters import RETRIED, Letter
from streams.log.topics import CHECK_VERDICTS, DEAD_LETTERS, SFT
from tests.streams.views.conftest import SECRET, Braid

pytestmark = pytest.mark.kafka

VALUE = b"\x00\x00\x00\x00\x01\xff" + SECRET.encode()


def bury(settings: Settings, *, copies: int = 1, **fields: Any) -> Letter:
    """Write an original to a topic of facts and its letter to the dead letters, as a worker does."""

    async def write() -> Letter:
        producer = await start_producer(settings)
        try:
            key = f"retried-{uuid.uuid4().hex[:8]}"
            topic, partition = settings.prefix + CHECK_VERDICTS.name, partition_of(key, settings.partitions)
            headers = (("ce_id", b"x-1"), ("traceparent", b"00-aa-bb-01"))
            sent = await producer.send_and_wait(
                topic, VALUE, key=key.encode(), partition=partition, headers=list(headers)
            )
            letter = Letter(key.encode(), VALUE, headers, topic, partition, sent.offset, "undecodable", "E", "no Avro")
            letter = letter._replace(**fields)
            name = settings.prefix + DEAD_LETTERS.name
            for _ in range(copies):
                await producer.send_and_wait(
                    name, letter.value, key=letter.key, partition=partition, headers=letter.wire_headers()
                )
            return letter
        finally:
            await producer.stop()

    return asyncio.run(write())


class Written(NamedTuple):
    """A record, as far as it must be the same."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def behind(settings: Settings, letter: Letter) -> list[Written]:
    """The records behind the original in its partition, of the same key."""

    async def records() -> AsyncIterator[Written]:
        consumer = await start_consumer(settings)
        try:
            place = TopicPartition(letter.topic, letter.partition)
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            consumer.seek(place, letter.offset + 1)
            while await consumer.position(place) < end:
                record = await consumer.getone()
                if record.key == letter.key:
                    yield Written(record.key, record.value, tuple(record.headers))
        finally:
            await consumer.stop()

    async def read() -> list[Written]:
        return [record async for record in records()]

    return asyncio.run(read())


def test_list_shows_letters_and_counts_by_reason(looked: Settings, braid: Braid) -> None:
    """A worker's records: reason, id of the original, rollout, message; and the sums."""
    shown = braid(looked, "dead-letters", "list", "--rollout", "lru-cache")
    assert shown.code == 0
    for text in (
        "Letters by reason",
        "late",
        "undecodable",
        "the rollout has closed",
        f"{looked.prefix}rollouts.build-verdicts.v1/",
    ):
        assert text in shown.out


def test_list_takes_filters(looked: Settings, braid: Braid) -> None:
    """By reason, topic, rollout and time, all of them together."""
    words = ("--reason", "late", "--topic", "build", "--rollout", "lru-cache", "--since", "2020-01-01", "--json")
    found = braid(looked, "dead-letters", "list", *words)
    assert [letter["reason"] for letter in found.json["letters"]] == ["late"]  # type: ignore[attr-defined]
    assert braid(looked, "dead-letters", "list", "--since", "2999-01-01").out == "no dead letters\n"


def test_show_has_headers_reason_and_a_redacted_preview(looked: Settings, braid: Braid) -> None:
    """Its content can be looked at, without its secrets."""
    letter = bury(looked)
    shown = braid(looked, "dead-letters", "show", letter.origin)
    for text in ("no Avro", "ce_id", "x-1", "wire header 00 00 00 00 01", "[REDACTED:anthropic_key]"):
        assert text in shown.out
    assert SECRET not in shown.out


def test_show_decodes_a_letter_that_is_a_record(looked: Settings, braid: Braid) -> None:
    """A late verdict is shown as what it says."""
    found = braid(looked, "dead-letters", "list", "--reason", "late", "--json")
    late = found.json["letters"][0]["id"]  # type: ignore[index]
    shown = braid(looked, "dead-letters", "show", late, "--json")
    assert shown.json["letters"][0]["record"]["verdict_id"] == "too-late"  # type: ignore[index]


def test_an_unknown_letter_is_an_error(looked: Settings, braid: Braid) -> None:
    """Exit code 1 and where ids come from."""
    shown = braid(looked, "dead-letters", "retry", "no/0/0")
    assert shown.code == 1
    assert "dead-letters list" in shown.err


def test_retry_puts_the_original_back_where_it_came_from(looked: Settings, braid: Braid) -> None:
    """The same key, bytes and headers in the same partition, and one header that says from which letter."""
    letter = bury(looked)
    assert braid(looked, "dead-letters", "retry", letter.origin).code == 0
    assert behind(looked, letter) == [(letter.key, VALUE, (*letter.headers, (RETRIED, letter.origin.encode())))]


def test_retry_puts_a_letter_back_once(looked: Settings, braid: Braid) -> None:
    """A second retry, or a letter that was written twice, writes nothing more."""
    letter = bury(looked, copies=2)
    braid(looked, "dead-letters", "retry", letter.origin)
    again = braid(looked, "dead-letters", "retry", letter.origin)
    assert "1 already put back" in again.out
    assert len(behind(looked, letter)) == 1


def test_a_dry_run_writes_nothing(looked: Settings, braid: Braid) -> None:
    """It says what would be done."""
    letter = bury(looked)
    assert "1 would be put back" in braid(looked, "dead-letters", "retry", letter.origin, "--dry-run").out
    assert behind(looked, letter) == []


def test_retry_refuses_what_came_too_late(looked: Settings, braid: Braid) -> None:
    """A decision never changes, for any caller."""
    letter = bury(looked, reason="late")
    shown = braid(looked, "dead-letters", "retry", letter.origin)
    assert "refused" in shown.out
    assert "what is decided never changes" in shown.out
    assert behind(looked, letter) == []


def test_retry_writes_to_no_other_topics_than_those_that_are_read(looked: Settings, braid: Braid) -> None:
    """A letter cannot send bytes to a training topic, whatever its headers say."""
    letter = bury(looked, topic=looked.prefix + SFT.name)
    assert "is no topic that facts or work are read from" in braid(looked, "dead-letters", "retry", letter.origin).out


def test_what_failed_again_is_put_back_only_by_its_id(looked: Settings, braid: Braid) -> None:
    """A retry of everything that is repeated does not go round in circles."""
    letter = bury(looked, headers=((RETRIED, b"somewhere/0/1"),))
    rollout = (letter.key or b"").decode()
    assert "failed again" in braid(looked, "dead-letters", "retry", "--rollout", rollout).out
    assert "1 put back" in braid(looked, "dead-letters", "retry", letter.origin).out
