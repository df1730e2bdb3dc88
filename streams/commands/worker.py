"""`braid worker`: the live worker."""

from streams.commands.numbers import MetricsPort, Slot
from streams.commands.options import LogLevel, given


def worker(
    *,
    slot: Slot | None = None,
    metrics_port: MetricsPort | None = None,
    captures: bool = True,
    log_level: LogLevel = "info",
) -> None:
    """Fold facts into closed rollouts, live, until SIGTERM or Ctrl-C.

    Run more of them, each with a slot of its own, and they share the partitions. A worker that dies is simply started
    again: it reads the log from its last commit, and no fact is lost or mixed up. Captures of the proxy and of tracers
    are folded into events beside, in a group of their own.

    Example: `braid worker --slot 1`

    Parameters
    ----------
    slot
        The worker's place in the group, counted from 0; a restarted worker with the same slot is back at once.
    metrics_port
        Serve /metrics, /healthz and /readyz on this port of loopback; 0 turns them off.
    captures
        Also fold captures; `--no-captures` leaves them to other workers.
    """
    import asyncio

    import uvloop

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load
    from streams.services.capture.both_workers import run_both
    from streams.services.live.live_worker import run_worker

    logs.configure(log_level)
    settings = load(worker=given(slot=slot, metrics_port=metrics_port))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_both(settings) if captures else run_worker(settings))
