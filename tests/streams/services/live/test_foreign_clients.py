"""Other people's clients: Confluent's consumer and deserializer, and Kafka's own console tools."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import DeserializingConsumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import StringDeserializer

from streams.cluster.broker import kafka_tool, places
from streams.cluster.config import Settings
from streams.jobs.ingest import ingest_files
from streams.log.input_lines import Rejected
from streams.log.topic_setup import ensure_topics
from streams.log.topics import DPO, TOPICS
from tests.live import Worker, records_of, until_closed
from tests.sample.sample_lines import write_sample

pytestmark = pytest.mark.kafka


async def test_a_confluent_consumer_reads_preference_pairs_through_the_registry(
    settings: Settings, tmp_path: Path
) -> None:
    """Its Avro deserializer needs nothing of ours: the schema comes from the registry."""
    path = tmp_path / "sample.ndjson"
    write_sample(path)
    await ingest_files([path], settings, Rejected(None), close=True)
    with Worker(settings, tmp_path / "worker.log", BRAID_EMISSION__JUDGE__KIND="external"):
        await until_closed(settings, {"csv-parser", "lru-cache"})
    wanted = len(await records_of(settings, DPO))
    registry = SchemaRegistryClient({"url": settings.registry})
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": settings.prefix,
            "auto.offset.reset": "earliest",
            "key.deserializer": StringDeserializer(),
            "value.deserializer": AvroDeserializer(registry),
        }
    )
    consumer.subscribe([settings.prefix + DPO.name])
    rows = []
    while len(rows) < wanted:
        message = consumer.poll(20)
        assert message is not None, f"{len(rows)} of {wanted} rows"
        assert message.key() == message.value()["rollout_id"]
        rows.append(message.value())
    consumer.close()
    registry.close()
    assert wanted > 4
    assert all(row["chosen"] and row["rejected"] and row["chosen"] != row["rejected"] for row in rows)


async def test_kafkas_own_tools_list_the_topics(settings: Settings) -> None:
    """The topics are ordinary topics: Kafka's command-line tools see them with their settings."""
    await ensure_topics(settings)
    command = kafka_tool(
        places.cache_dir(), "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", settings.kafka, "--list"
    )
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert {settings.prefix + topic.name for topic in TOPICS} <= set(listed)
