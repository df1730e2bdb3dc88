"""`braid fork`: a task becomes branches, live."""

import asyncio
import math
import signal
import sys
import time
import uuid
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from cyclopts import Parameter

from streams.commands.numbers import MOMENT_S, MOST_EXACT, number

if TYPE_CHECKING:
    from streams.cluster.config import Settings
    from streams.services.fork.logs import ForkLog
    from streams.services.fork.wiring import ForkOptions

Flag = Parameter(negative="")


def fork(
    task: str,
    /,
    *,
    branches: Annotated[int, number("--branches", 1)] = 8,
    concurrency: Annotated[int, number("--concurrency", 1)] = 4,
    model: Literal["scripted", "anthropic"] = "scripted",
    sandbox: Literal["local", "e2b"] = "local",
    temperature: str = "",
    seed: Annotated[int | None, number("--seed", -MOST_EXACT, MOST_EXACT)] = None,
    id: str = "",  # noqa: A002 - the flag's name
    resume: str = "",
    fork_from: str = "",
    log: Path | None = None,
    script: Path | None = None,
    max_steps: Annotated[int, number("--max-steps", 1)] = 40,
    branch_time: Annotated[float | None, number("--branch-time", MOMENT_S)] = None,
    total_time: Annotated[float | None, number("--total-time", MOMENT_S)] = None,
    branch_tokens: Annotated[int | None, number("--branch-tokens", 1)] = None,
    total_tokens: Annotated[int | None, number("--total-tokens", 1)] = None,
    memories: Annotated[int, number("--memories", 0, 50)] = 0,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Run a task N times side by side, each branch a coding agent in a sandbox of its own, every step on the log.

    TASK is a directory (instruction.md, task.toml, environment/, tests/) or the name of a sample: csv-table, name-migration,
    notes-api, price-page. A branch that fails ends with its status and its error. Ctrl-C ends all branches as aborted; a
    runner that was killed loses at most the turn in flight, and --resume runs what is unfinished.

    Example: `braid fork csv-table --branches 4 --id first`

    Parameters
    ----------
    branches
        How many.
    concurrency
        How many at once; each has a sandbox.
    model
        `anthropic`: the model that fork.model (BRAID_FORK__MODEL) names. `scripted`: turns from a script.
    sandbox
        `local`: on this machine, without network. `e2b`: a machine of E2B's for each (E2B_API_KEY).
    temperature
        Temperatures of the branches, as in 0.2,0.6,1.0; begun again when there are more branches.
    seed
        Of branch 0, the next branch has the next; for models that take one.
    id
        The rollout's id; made from the task's name and the time otherwise.
    resume
        The id of a rollout whose unfinished branches are run again, as new attempts.
    fork_from
        ROLLOUT/BRANCH@SEQ: begin with the turns that a branch had made by then, and fork from there.
    log
        Write to this file of lines instead of Kafka; `braid run FILE --out DIR` reads it.
    script
        The turns of --model scripted; the task's script.toml otherwise.
    max_steps
        Turns of a branch.
    branch_time
        Seconds of a branch; the task's own limit otherwise.
    total_time
        Seconds of all branches together.
    branch_tokens
        Tokens of a branch.
    total_tokens
        Tokens of all branches together.
    memories
        Tell the agents of up to so many past branches that passed at similar tasks (`braid memory add` remembers them).
    json
        Print JSON: the rollout's id first, one object for each branch that ends, the counts last.
    """
    from agents.fork.budget import Budgets
    from agents.fork.runner import Sampling
    from agents.fork.task_adapter import find_task, load_task
    from streams.cluster.config import load
    from streams.jobs.memory import recall
    from streams.services.fork.wiring import ForkOptions

    settings, folder = load(), find_task(task)
    loaded = load_task(folder)
    temperatures = _temperatures(temperature)
    limit_s = loaded.options.agent.timeout_sec if branch_time is None else branch_time
    options = ForkOptions(
        rollout_id=resume or id or f"{loaded.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
        branches=branches, sampling=Sampling(temperatures, seed), model=model, script=script, resume=bool(resume),
        budgets=Budgets(max_steps, branch_tokens, total_tokens, limit_s, total_time), fork_from=fork_from,
        memories=tuple(recall(settings, loaded.instruction, memories)) if memories and not resume else (),
    )  # fmt: skip
    sys.exit(asyncio.run(_run(options, folder, settings, sandbox, concurrency, log, json=json)))


def _temperatures(said: str) -> tuple[float, ...]:
    from agents.fork.fork_error import ForkError

    try:
        found = tuple(float(each) for each in said.split(",")) if said else ()
    except ValueError:
        found = (math.nan,)
    if not all(0 <= each < math.inf for each in found):
        raise ForkError(f"--temperature {said}: expected numbers from 0 on with commas, as in 0.2,0.6,1.0")
    return found


async def _run(
    options: "ForkOptions",
    folder: Path,
    settings: "Settings",
    sandbox: Any,
    concurrency: int,
    path: Path | None,
    *,
    json: bool,
) -> int:
    from agents.fork.task_adapter import load_task
    from streams.services.fork.wiring import models, prepare, sandbox_pool
    from streams.views.fork_board import Board

    task = load_task(folder)
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    assert current is not None
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, current.cancel)
    path = _path(options, settings, path)
    async with (
        _log(settings, path) as log,
        models(options, folder, settings) as model_for,
        sandbox_pool(sandbox, settings, concurrency) as pool,
    ):
        board = Board(options.rollout_id, quiet=json)
        fork = await prepare(options, task, model_for, log, pool, settings, board.say)
        if fork.is_new:
            await fork.runner.open()
        board.begin(fork.jobs, log.place)
        if json:  # first of all the id, so that whoever started it can resume it
            _print({"rollout_id": options.rollout_id, "log": log.place, "to_run": len(fork.jobs)})
        results = []
        try:
            async with aclosing(fork.runner.run(fork.jobs)) as running:
                async for result in running:
                    results.append(result)
                    board.ended(result)
                    if json:
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
    if json:
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
    from streams.log.kafka import hush
    from streams.services.fork.logs import file_log, kafka_log

    if path is not None:
        return file_log(path)
    hush()
    return kafka_log(settings)


def _print(value: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(value).decode() + "\n")
    sys.stdout.flush()
