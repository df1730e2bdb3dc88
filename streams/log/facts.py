"""Facts in the log: the rollout of a record, and its content."""

from collections.abc import Iterable

from agents.facts.fact import Fact
from schemas.base import Record
from schemas.closures import Closure
from schemas.errors import DecodeError
from schemas.lifecycle import Lifecycle
from streams.log.record import LogRecord
from streams.log.topics import Topic
from streams.log.wire import Codec


def rollout_of_key(key: bytes | None) -> str:
    """The rollout that a record is about. Raises DecodeError if its key is not a rollout's id."""
    try:
        rollout_id = (key or b"").decode()
    except UnicodeDecodeError:
        raise DecodeError("the key is not UTF-8; it must be the rollout's id") from None
    if not rollout_id:
        raise DecodeError("the key is empty; it must be the rollout's id")
    return rollout_id


def read_fact(codec: Codec, topic: Topic, value: bytes | None, rollout_id: str) -> Fact:
    """The fact in a value, the events of a slice as EventFields.

    Raises DecodeError if it is not a fact, or is about another rollout than its key.
    """
    return _about(rollout_id, topic, codec.decode_for_fold(topic, value))  # type: ignore[return-value]  # the fact topics hold facts


def readable_facts(codec: Codec, topic: Topic, records: Iterable[LogRecord]) -> list[tuple[str, Fact]]:
    """The facts of records with their rollouts, without unreadable ones."""
    found: list[tuple[str, Fact]] = []
    for record in records:
        try:
            rollout_id = rollout_of_key(record.key)
            found.append((rollout_id, read_fact(codec, topic, record.value, rollout_id)))
        except DecodeError:
            continue
    return found


def read_record(codec: Codec, topic: Topic, key: bytes | None, value: bytes | None) -> Record:
    """The record in a value. Raises DecodeError if it is not a fact, or is about another rollout than its key."""
    return _about(rollout_of_key(key), topic, codec.decode(topic, value))


def _about(rollout_id: str, topic: Topic, record: Record) -> Record:
    """The record, when it is about this rollout. Raises DecodeError when not."""
    named = record
    if topic.record is Closure or topic.record is Lifecycle:
        parts = [part for part in vars(record).values() if part is not None]
        if len(parts) != 1:
            raise DecodeError(
                f"a {topic.record.__name__ if topic.record else ''} holds exactly one of its parts, not {len(parts)}"
            )
        named = parts[0]
    if getattr(named, "rollout_id", None) != rollout_id:
        raise DecodeError(f"the key names rollout {rollout_id!r}, the record another one")
    return record
