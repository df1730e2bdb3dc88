"""Topics on the cluster that are as declared.

A topic with another partition count than configured is an error, never silently accepted: all records of a rollout must
have the same partition number.
"""

import asyncio
from collections.abc import Iterable

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError

from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, start_admin
from streams.log.topics import MARKS_TABLE, TOPICS, VIEW_TABLE, Topic, changelog, topic_config

CREATE_TIMEOUT_MS = 30_000
LEADERS_S = 30
"""A busy broker took over 5 s to elect leaders for new topics."""


async def ensure_topics(settings: Settings, topics: Iterable[Topic] = TOPICS) -> list[str]:
    """Create missing topics and check existing ones; return the names of the created ones."""
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
    """Create the missing ones of these topics; with `own_times` their records keep the times they are sent with."""
    admin = await start_admin(settings)
    try:
        existing = set(await admin.list_topics())
        wanted = {settings.prefix + topic.name: topic_config(topic, own_times=own_times) for topic in topics}
        await _create(admin, {name: config for name, config in wanted.items() if name not in existing}, settings)
    finally:
        await admin.close()


async def keep_append_times(settings: Settings, topics: Iterable[Topic]) -> None:
    """From now on the broker stamps appended records of these topics, as for all of ours; existing records keep their
    times.
    """
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
    for _ in range(20 * LEADERS_S):  # a new topic takes a moment to have leaders everywhere
        described = await admin.describe_topics(list(topics))
        if all(answer["error_code"] == 0 and len(answer["partitions"]) for answer in described):
            return
        await asyncio.sleep(0.05)
    raise ClusterError(f"the topics were created but have no leaders after {LEADERS_S} s; look at the broker's log")
