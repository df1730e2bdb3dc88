"""Possible faults of the cluster: reached or not, topics, schemas, worker and lag. Nothing is created or changed."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple, TypeVar

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from schemas.errors import BraidError
from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, registry_of, resolve, start_admin, start_consumer
from streams.log.terminal_text import line, listed, several
from streams.log.topics import FACTS, MARKS_TABLE, TOPICS, VIEW_TABLE, changelog
from streams.views.machine_checks import Check

PATIENCE_S = 15.0
"""How long a cluster may take to answer."""

NAMES = ("kafka", "topics", "registry", "schemas", "worker")

T = TypeVar("T")


class Lag(NamedTuple):
    """The records of a partition number behind the worker's commits."""

    partition: int
    records: int


class Findings(NamedTuple):
    """All checks of a cluster, and the lag by partition."""

    checks: list[Check]
    lag: list[Lag]


async def cluster_checks(settings: Settings) -> Findings:
    """Check everything; after an unreachable service, the remaining checks are `skipped`."""
    try:
        settings = resolve(settings)
    except ClusterError as error:
        return Findings([Check("kafka", "problem", str(error), "`braid broker start`"), *_skipped(NAMES[1:])], [])
    registry = await _registry_checks(settings)
    try:
        admin = await _in_time(start_admin(settings))
    except (BraidError, TimeoutError) as error:
        detail = line(str(error) or f"{settings.kafka} has not answered in {PATIENCE_S:.0f} s", 300)
        advice = "is it running, is BRAID_KAFKA right, does [security] fit?"
        return Findings([Check("kafka", "problem", detail, advice), *_skipped(("topics", "worker")), *registry], [])
    try:
        return await _in_time(_kafka_checks(settings, admin, registry))
    except (BraidError, KafkaError, TimeoutError) as error:
        detail = line(str(error) or f"{settings.kafka} has not answered in {PATIENCE_S:.0f} s", 300)
        return Findings([Check("kafka", "problem", detail, "look at the broker's log"), *registry], [])
    finally:
        await admin.close()


async def _in_time(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, PATIENCE_S)


def _skipped(names: tuple[str, ...]) -> list[Check]:
    return [Check(name, "skipped", "Kafka cannot be reached") for name in names]


async def _kafka_checks(settings: Settings, admin: AIOKafkaAdminClient, registry: list[Check]) -> Findings:
    cluster = await admin.describe_cluster()
    reached = Check("kafka", "ok", f"{settings.kafka}, {several(len(cluster['brokers']), 'broker')}")
    # All topics: asking for one by name can create it on some clusters.
    described = {each["topic"]: len(each["partitions"]) for each in await admin.describe_topics()}
    topics = topics_check(settings, described)
    worker, lag = await _worker(settings, admin, described)
    return Findings([reached, topics, *registry, worker], lag)


def topics_check(settings: Settings, found: Mapping[str, int]) -> Check:
    """Whether every topic exists, with the configured partition count; `found` has the counts by name."""
    wanted = [settings.prefix + topic.name for topic in TOPICS]
    missing = [name for name in wanted if name not in found]
    tables = [changelog(settings.group, table) for table in (MARKS_TABLE, VIEW_TABLE)]
    other = {
        name: found[name] for name in (*wanted, *tables) if found.get(name, settings.partitions) != settings.partitions
    }
    if other:
        detail = f"{listed([f'{name} has {count} partitions' for name, count in other.items()], 3)}, configured are {settings.partitions}"
        count = next(iter(other.values()))
        return Check("topics", "problem", detail, f"set BRAID_PARTITIONS={count}, or use another prefix (BRAID_PREFIX)")
    if len(missing) == len(wanted):
        prefix = f" with prefix {settings.prefix!r}" if settings.prefix else ""
        return Check(
            "topics", "problem", f"none of the {len(wanted)} topics is there{prefix}", "`braid up` creates them"
        )
    if missing:
        return Check("topics", "problem", f"missing: {listed(missing, 4)}", "`braid up` creates them")
    return Check("topics", "ok", f"{len(wanted)} topics with {settings.partitions} partitions each")


async def _registry_checks(settings: Settings) -> list[Check]:
    registry = registry_of(settings)
    if registry is None:
        return [
            Check("registry", "ok", "none: Avro carries the fingerprint of its schema"),
            Check("schemas", "skipped", "no registry"),
        ]
    wanted = [f"{settings.prefix}{topic.name}-value" for topic in TOPICS if topic.record is not None]
    try:
        missing = [subject for subject in wanted if not await _in_time(registry.has(subject))]
    except (BraidError, TimeoutError) as error:
        advice = "is it running, is BRAID_REGISTRY right? (it ends in /apis/ccompat/v7 for Apicurio)"
        return [
            Check("registry", "problem", line(str(error) or "it has not answered", 300), advice),
            Check("schemas", "skipped", "no registry"),
        ]
    finally:
        await registry.close()
    reached = Check("registry", "ok", line(settings.registry, 200))
    if missing:
        return [
            reached,
            Check("schemas", "problem", f"not registered: {listed(missing, 4)}", "`braid up` registers them"),
        ]
    return [reached, Check("schemas", "ok", f"{len(wanted)} subjects are registered")]


async def _worker(settings: Settings, admin: AIOKafkaAdminClient, topics: Mapping[str, int]) -> tuple[Check, list[Lag]]:
    """The members of the group, and their lag since the last commits."""
    members = await _members(settings, admin)
    lag = await _lag(settings, admin, topics)
    behind = sum(each.records for each in lag)
    waiting = f"{several(behind, 'record')} behind the commits"
    if members:
        held = " (open rollouts hold commits back)" if behind else ""
        return Check("worker", "ok", f"{several(members, 'member')} in {settings.group}, {waiting}{held}"), lag
    if behind:
        return Check(
            "worker", "problem", f"no worker is in {settings.group}, {waiting}", "start one: `braid worker`"
        ), lag
    return Check(
        "worker", "warning", f"no worker is in {settings.group}; nothing waits", "start one: `braid worker`"
    ), lag


async def _members(settings: Settings, admin: AIOKafkaAdminClient) -> int:
    try:
        answers = await admin.describe_consumer_groups([settings.group])
    except KafkaError:  # a cluster that has never had a group has no coordinator either
        return 0
    groups: list[Any] = [group for answer in answers for group in answer.to_object()["groups"]]
    return sum(len(group["members"]) for group in groups)


async def _lag(settings: Settings, admin: AIOKafkaAdminClient, topics: Mapping[str, int]) -> list[Lag]:
    names = [name for topic in FACTS if (name := settings.prefix + topic.name) in topics]
    places = [TopicPartition(name, number) for name in names for number in range(topics[name])]
    if not places:
        return []
    try:
        commits = await admin.list_consumer_group_offsets(settings.group)
    except KafkaError:
        commits = {}
    consumer = await start_consumer(settings)
    try:
        consumer.assign(places)
        consumer.pause(*places)
        first, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    finally:
        await consumer.stop()
    lag: dict[int, int] = {}
    for place in places:
        commit = commits.get(place)
        read_to = max(first[place], commit.offset if commit is not None else 0)
        lag[place.partition] = lag.get(place.partition, 0) + max(0, ends[place] - read_to)
    return [Lag(partition, records) for partition, records in sorted(lag.items())]
