"""Topics as declared: created once, checked always."""

import pytest

from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, partition_of
from streams.log.topic_setup import ensure_topics
from streams.log.topics import FACTS, TOPICS, topic_config


@pytest.mark.kafka
async def test_topics_are_created_once(settings: Settings) -> None:
    """The first call creates every declared topic, the second nothing."""
    created = await ensure_topics(settings)
    assert {settings.prefix + topic.name for topic in TOPICS} <= set(created)
    assert await ensure_topics(settings) == []


@pytest.mark.kafka
async def test_another_partition_count_is_an_error(settings: Settings) -> None:
    """A topic with other partitions than configured is never silently accepted; the message says what to set."""
    await ensure_topics(settings)
    with pytest.raises(ClusterError, match=r"has 4 partitions, the configuration says 5; set BRAID_PARTITIONS=4"):
        await ensure_topics(settings.model_copy(update={"partitions": 5}))


async def test_a_cluster_that_is_away_is_named() -> None:
    """The address and what to check are in the message."""
    with pytest.raises(ClusterError, match=r"Kafka at 127\.0\.0\.1:1 does not answer"):
        await ensure_topics(Settings(kafka="127.0.0.1:1"))


def test_facts_are_kept_for_ever() -> None:
    """Never compacted, never expired, stamped by the broker: they are the only state there is."""
    for topic in FACTS:
        config = topic_config(topic)
        assert (config["cleanup.policy"], config["retention.ms"], config["message.timestamp.type"]) == (
            "delete",
            "-1",
            "LogAppendTime",
        )


@pytest.mark.parametrize(("key", "partition"), [("r1", None), ("lru-cache", None)])
def test_the_partitioner_is_kafkas_own(key: str, partition: None) -> None:
    """The partition of a key is that of aiokafka's default partitioner, which is murmur2 as in Java."""
    from aiokafka.partitioner import DefaultPartitioner

    everyone = list(range(12))
    assert partition_of(key, 12) == DefaultPartitioner()(key.encode(), everyone, everyone)
