"""The baseline of benchmarks/live: a plain Faust agent, one event per record, decoded and counted. Prints records per second."""

import asyncio
import sys
import time

import faust
import uvloop

from schemas.codec.body import decode_slice
from streams.log.wire import body_of


async def main(kafka: str, topic: str, wanted: int, partitions: int) -> None:
    """Read `wanted` records."""
    app = faust.App(f"plain-{topic}", broker=f"kafka://{kafka}", store="memory://", web_enabled=False, topic_partitions=partitions,
                    topic_disable_leader=True, autodiscover=False, loghandlers=[], logging_config=None, datadir=f"/tmp/plain-{topic}",
                    consumer_auto_offset_reset="earliest", stream_wait_empty=False)  # fmt: skip
    source = app.topic(topic, key_serializer="raw", value_serializer="raw", key_type=bytes, value_type=bytes)
    done = asyncio.Event()
    count, began = 0, 0.0

    @app.agent(source)
    async def count_events(stream: faust.StreamT[bytes]) -> None:
        nonlocal count, began
        async for value in stream:
            began = began or time.perf_counter()
            decode_slice(body_of(value))
            count += 1
            if count >= wanted:
                done.set()

    app.finalize()
    await app.start()
    await done.wait()
    print(wanted / (time.perf_counter() - began))
    await app.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
