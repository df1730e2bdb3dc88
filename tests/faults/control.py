"""The control: the same worker with Faust's own consumer and without the offset check. It must lose rollouts, or the harness
proves nothing."""

import asyncio
import sys
from typing import Any

import uvloop
from faust.transport.drivers import aiokafka as driver

from streams.cluster.config import load
from streams.services.live import loop
from streams.services.live.seams import SafeConsumer


def make_stock() -> None:
    """Give the consumer back the methods that the safe one overrides, and let gaps pass."""
    for name in ("resume_partitions", "resume_flow", "stop_flow"):
        setattr(SafeConsumer, name, getattr(driver.Consumer, name))

    async def getmany(self: SafeConsumer, active_partitions: set[loop.TP] | None, timeout: float) -> Any:
        found = await driver.Consumer._getmany(self, active_partitions, timeout)
        return {tp: [records] if self.is_source(tp) else records for tp, records in found.items() if records}

    SafeConsumer._getmany = getmany  # type: ignore[method-assign]

    async def seek_to_committed(self: SafeConsumer) -> dict[object, int]:
        found = await driver.Consumer.seek_to_committed(self)
        self.start_at = {loop.TP(*tp): offset or 0 for tp, offset in found.items() if self.is_source(loop.TP(*tp))}
        return self.start_at

    SafeConsumer.seek_to_committed = seek_to_committed  # type: ignore[assignment, method-assign]

    original = loop.Loop._run_batch

    async def run_batch(self: loop.Loop, tp: loop.TP, records: list[Any], generation: int) -> None:
        """The same batch, cut where something is missing: there the position jumps ahead instead of raising."""
        wanted = self._wanted(tp)
        chunk: list[Any] = []
        for record in records:
            if record.offset > wanted:
                await original(self, tp, chunk, generation)
                chunk = []
                self._next[tp] = record.offset
            chunk.append(record)
            wanted = max(wanted, record.offset + 1)
        await original(self, tp, chunk, generation)

    loop.Loop._run_batch = run_batch  # type: ignore[method-assign, assignment]


def main() -> None:
    from streams.cluster import structured_logs as logs
    from streams.services.live.live_worker import run_worker

    make_stock()
    logs.configure("warning")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_worker(load()))


if __name__ == "__main__":
    sys.exit(main())
