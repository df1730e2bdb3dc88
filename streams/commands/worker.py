"""`braid worker`: the live worker."""

from typing import Literal

from streams.commands.numbers import MetricsPort, Slot


def worker(
    *,
    slot: Slot | None = None,
    metrics_port: MetricsPort | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """Fold facts into closed rollouts, live, until SIGTERM or Ctrl-C.

    Run more of them, each with a slot of its own, and they share the partitions. One that dies is simply started again: it
    reads the log from its last commit, and nothing is lost or mixed.

    Example: `braid worker --slot 1`

    Parameters
    ----------
    slot
        The worker's place in the group, counted from 0; a restarted worker with the same slot is back at once.
    metrics_port
        Serve /metrics, /healthz and /readyz on this port of loopback; 0 turns them off.
    log_level
        How much to say on standard error.
    """
    import asyncio

    import uvloop

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load
    from streams.services.live.worker import run_worker

    logs.configure(log_level)
    given = {"slot": slot, "metrics_port": metrics_port}
    settings = load(worker={name: value for name, value in given.items() if value is not None} or None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_worker(settings))
