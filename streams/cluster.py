"""The cluster: how to reach it, and topics that are as declared.

A topic with another partition count than configured is an error, never silently accepted: everything about a rollout must
meet in one partition number.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAlreadyExistsError
from aiokafka.partitioner import murmur2

from schemas.errors import BraidError
from streams.broker import places, status
from streams.config import Settings
from streams.registry import Registry
from streams.topics import MARKS_TABLE, TOPICS, VIEW_TABLE, Topic, changelog, topic_config

CREATE_TIMEOUT_MS = 30_000
REQUEST_BYTES = 12 * 1024 * 1024
"""More than the largest record (a dead letter) with its headers."""


Call = Callable[[], Awaitable[Any]]


class ClusterError(BraidError):
    """The cluster is away, or is not as it must be."""


def resolve(settings: Settings) -> Settings:
    """The settings with the local broker's addresses where none are configured. Raises ClusterError when it does not run."""
    if settings.kafka:
        return settings
    running = {service.name: service for service in status(settings.state_dir or places.state_dir()) if service.running}
    if "kafka" not in running:
        raise ClusterError("no Kafka: BRAID_KAFKA is not set and no local broker runs; `braid broker start` starts one")
    update: dict[str, Any] = {"kafka": running["kafka"].address}
    if not settings.registry and "registry" in running:
        update["registry"] = running["registry"].address
    return settings.model_copy(update=update)


def client_options(settings: Settings) -> dict[str, Any]:
    """Options that every aiokafka client needs."""
    return {"bootstrap_servers": settings.kafka.split(","), **settings.security.client_options()}


def registry_of(settings: Settings) -> Registry | None:
    """The configured schema registry, if any."""
    if not settings.registry:
        return None
    security = settings.security
    user, password = security.registry_username, security.registry_password.get_secret_value()
    tls = security.tls() if settings.registry.startswith("https:") else None
    return Registry(settings.registry, auth=(user, password) if user else None, tls=tls)


def partition_of(rollout_id: str, partitions: int) -> int:
    """The partition number of a rollout: Kafka's own murmur2 rule."""
    return int((murmur2(rollout_id.encode()) & 0x7FFFFFFF) % partitions)


async def start_producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """A producer that has reached the cluster: acknowledged by all replicas, idempotent, lz4."""
    producer = AIOKafkaProducer(
        **client_options(settings), acks="all", enable_idempotence=True, compression_type="lz4", linger_ms=5,
        max_request_size=REQUEST_BYTES, **options,
    )  # fmt: skip
    await reach(producer.start, producer.stop, settings)
    return producer


async def start_consumer(settings: Settings, **options: Any) -> AIOKafkaConsumer:
    """A consumer outside any group, for looking and replaying."""
    consumer = AIOKafkaConsumer(
        **client_options(settings), enable_auto_commit=False, auto_offset_reset="earliest", **options
    )
    await reach(consumer.start, consumer.stop, settings)
    return consumer


async def start_admin(settings: Settings) -> AIOKafkaAdminClient:
    """An admin client that has reached the cluster."""
    admin = AIOKafkaAdminClient(**client_options(settings))
    await reach(admin.start, admin.close, settings)
    return admin


async def reach(starting: Call, closing: Call, settings: Settings) -> None:
    """Start a client. Raises ClusterError, and closes it, when the cluster does not answer or does not want us."""
    try:
        await starting()
    except (KafkaConnectionError, OSError) as error:
        await closing()
        raise ClusterError(
            f"Kafka at {settings.kafka} does not answer: {error}; is it running, is BRAID_KAFKA right, "
            "are the [security] settings what it wants?"
        ) from None
    except KafkaError as error:
        await closing()
        raise ClusterError(f"Kafka at {settings.kafka} refuses us: {error}; check the [security] settings") from None


async def ensure_topics(settings: Settings, topics: Iterable[Topic] = TOPICS) -> list[str]:
    """Create what is missing and check what is there; returns the names that were created."""
    admin = await start_admin(settings)
    try:
        wanted = {settings.prefix + topic.name: topic_config(topic) for topic in topics}
        for table in (MARKS_TABLE, VIEW_TABLE):
            wanted[changelog(settings.group, table)] = {"cleanup.policy": "compact"}
        existing = set(await admin.list_topics())
        missing = [name for name in wanted if name not in existing]
        await _create(admin, {name: wanted[name] for name in missing}, settings)
        described = await admin.describe_topics(list(wanted))
        for answer in described:
            found = len(answer["partitions"])
            if found != settings.partitions:
                raise ClusterError(
                    f"topic {answer['topic']} has {found} partitions, the configuration says {settings.partitions}; "
                    f"set BRAID_PARTITIONS={found}, or use another prefix (BRAID_PREFIX)"
                )
        return missing
    finally:
        await admin.close()


async def create_topics(settings: Settings, topics: Iterable[Topic], *, own_times: bool) -> None:
    """Create those of these topics that are missing; with `own_times` their records keep the times they are sent with."""
    admin = await start_admin(settings)
    try:
        existing = set(await admin.list_topics())
        wanted = {settings.prefix + topic.name: topic_config(topic, own_times=own_times) for topic in topics}
        await _create(admin, {name: config for name, config in wanted.items() if name not in existing}, settings)
    finally:
        await admin.close()


async def keep_append_times(settings: Settings, topics: Iterable[Topic]) -> None:
    """From now on topics stamp what is appended, as all of ours do; what is in them keeps its times."""
    admin = await start_admin(settings)
    try:
        await admin.alter_configs(
            [
                ConfigResource(ConfigResourceType.TOPIC, settings.prefix + topic.name, topic_config(topic))
                for topic in topics
            ]
        )
    finally:
        await admin.close()


async def _create(admin: AIOKafkaAdminClient, topics: dict[str, dict[str, str]], settings: Settings) -> None:
    if not topics:
        return
    new = [
        NewTopic(name, settings.partitions, settings.replication, topic_configs=config)
        for name, config in topics.items()
    ]
    try:
        answer = await admin.create_topics(new, timeout_ms=CREATE_TIMEOUT_MS)
    except TopicAlreadyExistsError:
        return  # another worker was faster
    for name, code, *message in getattr(answer, "topic_errors", ()):
        if code not in (0, 36):  # 36: another worker was faster
            raise ClusterError(f"topic {name} cannot be created (Kafka error {code}): {message[0] if message else ''}")
    for _ in range(100):  # a new topic takes a moment to have leaders everywhere
        described = await admin.describe_topics(list(topics))
        if all(answer["error_code"] == 0 and len(answer["partitions"]) for answer in described):
            return
        await asyncio.sleep(0.05)
    raise ClusterError("the topics were created but have no leaders after 5 s; look at the broker's log")
