"""A detached process and the file that remembers it.

The file has the process id and the start time of the process from the kernel. An id alone is not
enough: after a crash or a reboot it may belong to a stranger, who must be neither reported nor killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from streams.cluster.broker.errors import BrokerError

# How long the kernel may take to end a killed process (only a stuck disk delays it).
KILL_SECONDS = 10.0
POLL_SECONDS = 0.05

# The processes that this one started: when they end they must be waited for, or they stay as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


class Process(NamedTuple):
    """A process that cannot be confused with a later one of the same id."""

    pid: int
    began: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return _began(self.pid) == self.began


def launch(command: Sequence[str], *, folder: Path, log: Path, env: Mapping[str, str], pid_file: Path) -> Process:
    """Start a process that outlives this one, in a session of its own, with all it prints added to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    # None if it has ended already: an empty start time equals that of no process.
    process = Process(child.pid, _began(child.pid) or "")
    temporary = pid_file.with_suffix(".new")
    temporary.write_text(json.dumps(process._asdict()))
    temporary.replace(pid_file)
    return process


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block ends: a process that starts in it is known when they arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals interrupt the main thread alone
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = {number: signal.signal(number, lambda got, _frame: came.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def running(pid_file: Path) -> Process | None:
    """The process that the file remembers, if it still runs."""
    try:
        process = Process(**json.loads(pid_file.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return process if process.alive else None


def end(process: Process, patience: float) -> None:
    """End a process: asked first, killed when it has not ended after `patience` seconds."""
    _signal(process, signal.SIGTERM)
    if not _wait_for_end(process, patience):
        kill(process)


def kill(process: Process) -> None:
    """End a process as a crash would: without a chance to write anything."""
    _signal(process, signal.SIGKILL)
    if not _wait_for_end(process, KILL_SECONDS):
        raise BrokerError(f"Process {process.pid} does not end, not even when killed: its disk may be stuck.")


def _signal(process: Process, number: signal.Signals) -> None:
    if process.alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _wait_for_end(process: Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.alive:
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _began(pid: int) -> str | None:
    """The start time of the process of this id, as the kernel writes it; None if there is none, or only a zombie."""
    began = _began_linux(pid) if sys.platform == "linux" else _began_elsewhere(pid)
    if began is None and (child := _children.pop(pid, None)):
        child.wait()
    return began


def _began_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # Clock ticks count from the boot: two boots can give the same number.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may contain anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot} {fields[18]}"


def _began_elsewhere(pid: int) -> str | None:
    answer = subprocess.run(
        ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)],
        env={"LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split(maxsplit=1)
    return None if len(answer) < 2 or answer[0].startswith("Z") else answer[1].strip()
