"""The span of a log that grows while it is measured holds everything that its decisions are about."""

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka import TopicPartition

from streams.cluster.config import Settings
from streams.log.kafka_reader import KafkaReader
from streams.log.record import Span
from streams.log.topics import CLOSURES, FACTS, TOPICS, Topic


@pytest.mark.parametrize("topics", [FACTS, TOPICS])
def test_no_decision_is_in_the_span_without_its_facts(
    topics: tuple[Topic, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two questions a fact is written to every topic, and a decision about all of them."""
    written = 0

    async def spans(
        _log: KafkaReader, places: Sequence[TopicPartition], _since: int | None = None
    ) -> dict[TopicPartition, Span]:
        nonlocal written
        written += 1
        return {place: Span(0, written) for place in places}

    monkeypatch.setattr(KafkaReader, "_spans_of", spans)
    monkeypatch.setattr(
        KafkaReader, "_places", lambda _log, name, _rollout_id: [TopicPartition(name, number) for number in range(2)]
    )
    found = asyncio.run(KafkaReader(Settings(kafka="127.0.0.1:1", registry="")).spans(topics))
    assert list(found) == [topic.name for topic in topics]
    for partition in range(2):
        assert all(found[CLOSURES.name][partition].end <= found[topic.name][partition].end for topic in topics)
