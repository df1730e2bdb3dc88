"""Connections to the cluster: clients that have reached it, and the partition of a rollout."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.partitioner import murmur2

from schemas.errors import BraidError
from streams.cluster.broker import places, status
from streams.cluster.config import Settings
from streams.cluster.schema_registry import Registry

REQUEST_BYTES = 12 * 1024 * 1024
"""More than the largest record (a dead letter) with its headers."""


Call = Callable[[], Awaitable[Any]]


class ClusterError(BraidError):
    """The cluster is away, or is not as it must be."""


def resolve(settings: Settings) -> Settings:
    """The settings, with the local broker's addresses if none are configured. Raises ClusterError when it does not run."""
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
    """A producer that has reached the cluster: acknowledged by all replicas, idempotent, lz4 unless `options` say otherwise."""
    producer = AIOKafkaProducer(
        **client_options(settings), acks="all", enable_idempotence=True, linger_ms=5, max_request_size=REQUEST_BYTES,
        **{"compression_type": "lz4", **options},
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
