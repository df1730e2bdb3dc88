"""The worker process: topics and schemas in place, the loop running, signals and health answered.

SIGTERM and Ctrl-C stop it gracefully with exit code 0. An unexpected exception ends it with another code; its
supervisor restarts it, and the log is read again from the commit.
"""

import asyncio
import signal
from contextlib import suppress

import structlog

from streams.cluster.config import Settings
from streams.cluster.connections import registry_of, resolve
from streams.cluster.garbage_collector import tune_gc
from streams.cluster.signing_keys import signing_key, trusted_verifiers
from streams.log.topic_setup import ensure_topics
from streams.log.topics import FACTS
from streams.log.wire import Codec
from streams.services.health import Health
from streams.services.live.loop import Loop
from streams.services.live.rollout_driver import RolloutDriver
from streams.services.live.worker_metrics import WorkerMetrics
from streams.services.slot import Slot, claimed

log = structlog.get_logger()


async def run_worker(
    settings: Settings, *, ready: asyncio.Event | None = None, stop: asyncio.Event | None = None
) -> None:
    """Run a worker until a signal (or `stop`) ends it. Raises SlotTakenError if another worker holds its slot."""
    settings = resolve(settings)
    async with claimed(settings, settings.group, settings.worker.slot) as slot:
        await _run(settings, slot, ready, stop)


async def _run(settings: Settings, slot: Slot, ready: asyncio.Event | None, stop: asyncio.Event | None) -> None:
    await ensure_topics(settings)
    registry = registry_of(settings)
    codec = Codec(registry, prefix=settings.prefix)
    await codec.register()
    metrics = WorkerMetrics()
    loop = Loop(settings, FACTS, slot.remember)
    key, trusted = signing_key(settings), trusted_verifiers(settings)
    driver = RolloutDriver(loop, settings, codec, key, metrics, trusted)
    if stop is not None:
        loop.stopping = stop
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, RuntimeError):
            running.add_signal_handler(number, loop.stopping.set)
    tune_gc()
    health = Health(settings.worker.metrics_host, settings.worker.metrics_port, metrics.registry, lambda: loop.live)
    await health.start()
    log.info(
        "worker starting",
        kafka=settings.kafka,
        registry=settings.registry or None,
        group=settings.group,
        slot=settings.worker.slot,
        key=key.key_id,
        trusted_verifiers=None if trusted is None else sorted(trusted),
    )
    try:
        await loop.run(driver, ready)
        log.info("worker stopped")
    finally:
        await health.stop()
        if registry is not None:
            await registry.close()
