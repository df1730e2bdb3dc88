"""`braid judge worker`: answers requests with votes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from streams.commands.numbers import MetricsPort, Slot, number
from streams.commands.options import Flags, LogLevel, given


@dataclass(frozen=True, kw_only=True)
class JudgeWorkerFlags(Flags):
    """Values of the configuration's section `judge`."""

    slot: Slot | None = None
    """The worker's place in the group, counted from 0."""
    rules: Path | None = None
    """The rule file of a scripted judge."""
    concurrency: Annotated[int | None, number("--concurrency", 1, 1000)] = None
    """Concurrent calls."""
    metrics_port: MetricsPort | None = None
    """Serve /metrics, /healthz and /readyz on this port of loopback (0: not at all)."""


def worker(*, flags: JudgeWorkerFlags = JudgeWorkerFlags(), log_level: LogLevel = "info") -> None:
    """Answer judge requests with votes, until SIGTERM or Ctrl-C.

    The judge is the one of emission.judge (kind scripted, anthropic or openai); `braid worker` must run with the same.
    Run more of them, each with a slot of its own, and they share the partitions. One that dies is simply started again:
    votes that are in the log are never paid for twice.

    judge.calls_per_hour is counted by this worker for itself: every other one, `again`, `calibrate`, `braid run
    --judge` and a build verifier with criteria may use as many calls in addition.

    Example: `braid judge worker --slot 1`
    """
    import asyncio

    import uvloop

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load
    from streams.services.judge.judge_worker import run_judge_worker

    logs.configure(log_level)
    settings = load(judge=given(**vars(flags)))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_judge_worker(settings))
