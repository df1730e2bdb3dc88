"""The yardstick of benchmarks/live: the same fold in a bare aiokafka loop, without Faust, tables or decisions read back."""

import asyncio
import sys
import time

import uvloop
from aiokafka import TopicPartition

from agents.evidence.build import sign
from agents.rollouts.decision import decide
from agents.rollouts.emission import emit
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure, RolloutSettled
from schemas.emission import EmissionConfig
from streams.cluster.config import load
from streams.cluster.connections import registry_of, start_consumer, start_producer
from streams.cluster.signing_keys import signing_key
from streams.log.headers import identity
from streams.log.topics import BY_RECORD, CLOSURES, FACTS
from streams.log.wire import Codec


async def main(rollouts: int) -> None:
    """Fold until so many rollouts have closed; prints events per second."""
    settings = load()
    codec, key = Codec(registry_of(settings), prefix=settings.prefix), signing_key(settings)
    await codec.register()
    consumer = await start_consumer(settings, max_partition_fetch_bytes=1024 * 1024)
    producer = await start_producer(settings)
    topics = {settings.prefix + topic.name: topic for topic in FACTS if topic is not CLOSURES}
    tps = [TopicPartition(name, partition) for name in topics for partition in range(settings.partitions)]
    consumer.assign(tps)
    await consumer.seek_to_beginning(*tps)
    config, policy = EmissionConfig(), ClosingPolicy()
    live: dict[bytes, Rollout] = {}
    events = closed = 0
    began = time.perf_counter()
    while closed < rollouts:
        acks = []
        for batch in (await consumer.getmany(timeout_ms=200, max_records=2000)).values():
            touched = {}
            for record in batch:
                fact = codec.decode_for_fold(topics[record.topic], record.value)
                rollout = live.setdefault(record.key, Rollout(record.key.decode()))
                rollout.add(fact, record.timestamp, (record.topic, record.partition, record.offset))
                events += len(getattr(fact, "events", ()))
                touched[record.key] = (rollout, record.partition)
            for name, (rollout, partition) in touched.items():
                while (decision := decide(rollout, config, policy, None, {})) is not None:
                    closure = (
                        Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
                    )
                    rollout.add(closure, 0, ("", 0, 0))
                if rollout.has_closed_facts():
                    emission = emit(rollout)
                    evidence = [sign(each, key) for each in emission.evidence]
                    for row in (*emission.branches, emission.ranking, *emission.rows, *emission.rejected, *evidence):
                        topic = settings.prefix + "bare." + BY_RECORD[type(row)].name
                        acks.append(
                            await producer.send(
                                topic,
                                codec.encode(row, emission.bodies.get(identity(row))),
                                key=name,
                                partition=partition,
                            )
                        )
                    del live[name]
                    closed += 1
        await asyncio.gather(*acks)
    print(events / (time.perf_counter() - began))
    await consumer.stop()
    await producer.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
