"""`braid fork`: a task becomes branches, live."""

import asyncio
import shlex
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.commands.console_output import print_json
from streams.commands.fork_flags import ForkFlags

if TYPE_CHECKING:
    from agents.fork.runner import BranchResult
    from agents.fork.task import Task
    from agents.verdicts.meaning import Verdict
    from agents.workspace.snapshot import TakenOf
    from streams.cluster.config import Settings
    from streams.services.fork.fork_setup import Fork, ForkOptions
    from streams.services.fork.logs import ForkLog
    from streams.services.verifiers.log_verifier import LogVerifier
    from streams.views.fork_board import Board


def fork(task: str, /, *, flags: ForkFlags = ForkFlags()) -> None:
    """Run a task N times side by side, each branch a coding agent in a sandbox of its own, every step on the log.

    TASK is a directory (instruction.md, task.toml, environment/, tests/) or the name of a sample: csv-table, name-migration,
    notes-api, price-page. A branch that fails ends with its status and its error. Ctrl-C ends all branches as aborted;
    a runner that was killed loses at most the turn in flight, and --resume runs the unfinished branches.

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
    sys.exit(asyncio.run(_run(task, options, folder, settings, flags)))


async def _run(name: str, options: "ForkOptions", folder: Path, settings: "Settings", flags: ForkFlags) -> int:
    from agents.fork.task_adapter import load_task
    from streams.services.fork.fork_setup import models, prepare, sandbox_pool
    from streams.views.fork_board import Board

    task = load_task(folder)
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    assert current is not None
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, current.cancel)
    path = _path(options, settings, flags)
    async with (
        _log(settings, path) as log,
        models(options, folder, settings) as model_for,
        sandbox_pool(flags.sandbox, settings, flags.concurrency) as pool,
        _verifier(flags, log, settings, task) as verifier,
    ):
        board = Board(options.rollout_id, quiet=flags.json)
        fork = await prepare(options, task, model_for, log, pool, settings, board.say)
        if fork.is_new:
            await fork.runner.open()
        board.begin(fork.jobs, log.place)
        if flags.json:  # first of all the id, so that the caller can resume it
            _print({"rollout_id": options.rollout_id, "log": log.place, "to_run": len(fork.jobs)})
        done = _Done(board, flags)
        try:
            await done.run(fork, task, verifier)
        except asyncio.CancelledError:
            board.close()
            sys.stderr.write(f"stopped: the branches that ran ended as aborted ({log.place})\n")
            return 130
        board.close()
    done.report(options.rollout_id, log.place, f"braid fork {shlex.quote(name)}", path)
    return 0 if all(result.status in ("answered", "failed") for result in done.results) else 1


class _Done:
    """The results of the branches, printed as they come and summed up at the end."""

    def __init__(self, board: "Board", flags: ForkFlags) -> None:
        self._board = board
        self._flags = flags
        self.results: list[BranchResult] = []
        self._verdicts: list[Verdict] = []
        self._is_verified = flags.verify
        """Whether every branch was verified."""

    async def run(self, fork: "Fork", task: "Task", verifier: "LogVerifier | None") -> None:
        """Run the branches; the verifier, if there is one, tests each."""
        from streams.services.verifiers.log_verifier import run_verified

        self._is_verified |= not fork.jobs and bool(fork.history.verdicts)
        async with aclosing(run_verified(fork, task, verifier, self._verified)) as running:
            async for result in running:
                self._ended(result)

    def _ended(self, result: "BranchResult") -> None:
        self.results.append(result)
        self._board.ended(result)
        if self._flags.json:
            _print({"branch_index": result.branch_index, "attempt": result.attempt, "status": result.status,
                    "error": result.error, "steps": result.steps, "tokens": result.tokens.total,
                    "workspace": result.workspace and result.workspace.digest})  # fmt: skip

    def _verified(self, place: "TakenOf", verdicts: "Sequence[Verdict]") -> None:
        from agents.verdicts.meaning import CURRENT, kind_of, meaning

        self._verdicts += verdicts
        self._board.verified(place.branch_index, verdicts)
        for verdict in verdicts if self._flags.json else ():
            _print({"branch_index": place.branch_index, "attempt": place.attempt, "verdict": kind_of(verdict),
                    "outcome": meaning(verdict, CURRENT).outcome})  # fmt: skip

    def report(self, rollout_id: str, place: str, command: str, path: Path | None) -> None:
        """Print the counts, and the next steps."""
        counts = {
            status: sum(result.status == status for result in self.results)
            for status in ("answered", "failed", "aborted", "infra_error")
        }
        if self._flags.json:
            verified = {"verdicts": len(self._verdicts)} if self._flags.verify else {}
            _print({"rollout_id": rollout_id, "log": place, "branches": len(self.results), **counts, **verified})
            return
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing was left to do"
        if self._flags.verify:
            said += f", {len(self._verdicts)} verdicts written"
        follow = f"braid run {path} --out DIR" if path else f"braid show {rollout_id}"
        sys.stdout.write(f"{rollout_id}: {said}. Next: `{follow}`\n")
        if path and not self._is_verified:
            sys.stdout.write(
                "Nothing has verified these branches yet, so their outcomes are unknown: "
                f"`{command} --resume {shlex.quote(rollout_id)} --log {shlex.quote(str(path))} --verify` tests them\n"
            )


def _path(options: "ForkOptions", settings: "Settings", flags: ForkFlags) -> Path | None:
    """The file to write to; None for Kafka. Without a broker it is a file, which is reported. Raises ForkError."""
    from agents.fork.fork_error import ForkError
    from streams.cluster.connections import ClusterError, resolve

    if flags.log is not None:
        return flags.log
    try:
        resolve(settings)
    except ClusterError:
        path = Path(f"{options.rollout_id}.ndjson")
        sys.stderr.write(f"no Kafka here (`braid broker start` starts one): writing to {path}\n")
        return path
    if flags.verify:
        raise ForkError(
            "--verify goes with --log FILE: on Kafka `braid build-verifier` and `braid visual-verifier` look at branches, "
            "with a role and keys of their own"
        )
    return None


def _verifier(
    flags: ForkFlags, log: "ForkLog", settings: "Settings", task: "Task"
) -> "AbstractAsyncContextManager[LogVerifier | None]":
    """With --verify the verifier of the file. Raises ConfigError, before anything is written, when its key is not trusted."""
    from streams.services.verifiers.log_verifier import log_verifier

    return log_verifier(log, settings, [task]) if flags.verify else nullcontext()


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
