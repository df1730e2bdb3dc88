"""`braid fork`: a task becomes branches, live."""

import asyncio
import signal
import sys
import time
import uuid
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.commands.console_output import print_json
from streams.commands.fork_flags import ForkFlags

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.services.fork.fork_setup import ForkOptions
    from streams.services.fork.logs import ForkLog


def fork(task: str, /, *, flags: ForkFlags = ForkFlags()) -> None:
    """Run a task N times side by side, each branch a coding agent in a sandbox of its own, every step on the log.

    TASK is a directory (instruction.md, task.toml, environment/, tests/) or the name of a sample: csv-table, name-migration,
    notes-api, price-page. A branch that fails ends with its status and its error. Ctrl-C ends all branches as aborted; a
    runner that was killed loses at most the turn in flight, and --resume runs what is unfinished.

    Example: `braid fork csv-table --branches 4 --id first`
    """
    from agents.fork.budget import Budgets
    from agents.fork.runner import Sampling
    from agents.fork.task_adapter import find_task, load_task
    from streams.cluster.config import load
    from streams.jobs.memory import recall
    from streams.services.fork.fork_setup import ForkOptions

    settings, folder = load(fork=flags.service() or None), find_task(task)
    loaded = load_task(folder)
    sampling = Sampling(flags.temperatures(), flags.seed)
    limit_s = loaded.options.agent.timeout_sec if flags.branch_time is None else flags.branch_time
    remembered = flags.memories and not flags.resume
    options = ForkOptions(
        rollout_id=flags.resume or flags.id or f"{loaded.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
        branches=flags.branches, sampling=sampling, model=flags.model, script=flags.script, resume=bool(flags.resume),
        budgets=Budgets(
            flags.max_steps, flags.branch_tokens, flags.total_tokens, limit_s, flags.total_time,
            settings.fork.timeout_s, settings.fork.max_tokens,
        ),
        fork_from=flags.fork_from,
        memories=tuple(recall(settings, loaded.instruction, flags.memories)) if remembered else (),
    )  # fmt: skip
    sys.exit(asyncio.run(_run(options, folder, settings, flags)))


async def _run(options: "ForkOptions", folder: Path, settings: "Settings", flags: ForkFlags) -> int:
    from agents.fork.task_adapter import load_task
    from streams.services.fork.fork_setup import models, prepare, sandbox_pool
    from streams.views.fork_board import Board

    task = load_task(folder)
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    assert current is not None
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, current.cancel)
    path = _path(options, settings, flags.log)
    async with (
        _log(settings, path) as log,
        models(options, folder, settings) as model_for,
        sandbox_pool(flags.sandbox, settings, flags.concurrency) as pool,
    ):
        board = Board(options.rollout_id, quiet=flags.json)
        fork = await prepare(options, task, model_for, log, pool, settings, board.say)
        if fork.is_new:
            await fork.runner.open()
        board.begin(fork.jobs, log.place)
        if flags.json:  # first of all the id, so that the caller can resume it
            _print({"rollout_id": options.rollout_id, "log": log.place, "to_run": len(fork.jobs)})
        results = []
        try:
            async with aclosing(fork.runner.run(fork.jobs)) as running:
                async for result in running:
                    results.append(result)
                    board.ended(result)
                    if flags.json:
                        _print({"branch_index": result.branch_index, "attempt": result.attempt, "status": result.status,
                                "error": result.error, "steps": result.steps, "tokens": result.tokens.total,
                                "workspace": result.workspace and result.workspace.digest})  # fmt: skip
        except asyncio.CancelledError:
            board.close()
            sys.stderr.write(f"stopped: the branches that ran ended as aborted ({log.place})\n")
            return 130
        board.close()
    counts = {
        status: sum(result.status == status for result in results)
        for status in ("answered", "failed", "aborted", "infra_error")
    }
    if flags.json:
        _print({"rollout_id": options.rollout_id, "log": log.place, "branches": len(results), **counts})
    else:
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing was left to do"
        follow = f"braid run {path} --out DIR" if path else f"braid show {options.rollout_id}"
        sys.stdout.write(f"{options.rollout_id}: {said}. Next: `{follow}`\n")
    return 0 if all(result.status in ("answered", "failed") for result in results) else 1


def _path(options: "ForkOptions", settings: "Settings", path: Path | None) -> Path | None:
    """The file to write to; None for Kafka. Without a broker it is a file, and that is said."""
    from streams.cluster.connections import ClusterError, resolve

    if path is not None:
        return path
    try:
        resolve(settings)
    except ClusterError:
        path = Path(f"{options.rollout_id}.ndjson")
        sys.stderr.write(f"no Kafka here (`braid broker start` starts one): writing to {path}\n")
    return path


def _log(settings: "Settings", path: Path | None) -> "AbstractAsyncContextManager[ForkLog]":
    from streams.log.kafka_reader import hush
    from streams.services.fork.logs import file_log, kafka_log

    if path is not None:
        return file_log(path)
    hush()
    return kafka_log(settings)


def _print(value: dict[str, Any]) -> None:
    print_json(value)
    sys.stdout.flush()
