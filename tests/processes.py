"""`braid` in processes of their own, forked from one that has imported the commands.

A start costs 0.05 CPU seconds instead of 0.9. Everything else is as with a shell: own process id, environment, directory,
output and exit code; it can be killed. Tests of the start itself use `python -m streams.cli`.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import active_children, forkserver, get_context
from pathlib import Path

PRELOADED = [
    "__main__",
    *(
        f"streams.commands.{name}"
        for name in ("fork", "judge.app", "memory", "replay", "run", "up", "verifiers", "worker")
    ),
    "streams.services.live.live_worker",
    "streams.services.judge.judge_worker",
    "streams.services.fork.fork_setup",
    "tests.processes",
]


class Forked:
    """A process that runs `braid` with these words; the methods are those of subprocess.Popen."""

    def __init__(
        self,
        words: Sequence[object],
        env: Mapping[str, str],
        out: Path,
        err: Path | None = None,
        cwd: Path | None = None,
    ) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        for path in (out, err or out):
            path.touch()
        arguments = ([*map(str, words)], dict(env), out, err or out, cwd or Path.cwd())
        self._process = context.Process(target=_braid, args=arguments)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("braid", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def run_braid(
    *words: object, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `braid` to its end, as subprocess.run does with captured output."""
    with tempfile.TemporaryDirectory(prefix="braid-said-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = Forked(words, os.environ if env is None else env, out, err, cwd)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess([*map(str, words)], code, out.read_text(), err.read_text())


def end_forking() -> None:
    """End what a failed test left, and the process that the others are forked from; its CPU time then counts as ours."""
    for left in active_children():
        left.kill()
    forkserver._forkserver._stop()


def _braid(words: list[str], env: dict[str, str], out: Path, err: Path, cwd: Path) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["braid", *words]
    for number, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    from streams.cli import main

    main(words)
