"""Processes that outlive their starter: an interrupt while one starts finds it known."""

import os
import signal
import sys
from pathlib import Path

import pytest

from streams.cluster.broker import process


def test_an_interrupt_comes_after_the_process_is_known(tmp_path: Path) -> None:
    """Ctrl-C between the start of a process and the note of its id left the process running."""
    started: list[process.Process] = []

    def interrupted_start() -> None:
        with process.interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            command = [sys.executable, "-c", "import time; time.sleep(60)"]
            note = tmp_path / "process.json"
            started.append(
                process.launch(command, folder=tmp_path, log=tmp_path / "log", env=os.environ, pid_file=note)
            )

    with pytest.raises(KeyboardInterrupt):
        interrupted_start()
    (one,) = started
    assert one.alive
    process.end(one, 10.0)
    assert not one.alive
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
