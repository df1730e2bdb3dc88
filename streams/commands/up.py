"""`braid up`: topics and schemas in place."""

import asyncio
import sys

from streams.commands.console_output import print_json
from streams.commands.options import Json


def up(*, json: Json = False) -> None:
    """Create the topics and register the schemas; existing ones are checked and left alone.

    A topic with another partition count than configured is an error: all records of a rollout must have the same
    partition number.

    Example: `braid up`
    """
    from streams.cluster.config import load
    from streams.cluster.connections import registry_of, resolve
    from streams.log.topic_setup import ensure_topics
    from streams.log.wire import Codec

    settings = resolve(load())

    async def prepare() -> tuple[list[str], dict[str, int]]:
        created = await ensure_topics(settings)
        registry = registry_of(settings)
        ids = await Codec(registry, prefix=settings.prefix).register()
        if registry is not None:
            await registry.close()
        return created, ids

    created, ids = asyncio.run(prepare())
    if json:
        print_json({"kafka": settings.kafka, "registry": settings.registry, "created": created, "schemas": ids})
        return
    sys.stdout.write(
        f"{settings.kafka}: {len(created)} topics created, the rest was there ({settings.partitions} partitions each)\n"
    )
    sys.stdout.write(
        f"{settings.registry}: {len(ids)} schemas registered\n"
        if settings.registry
        else "no schema registry: Avro single-object encoding\n"
    )
