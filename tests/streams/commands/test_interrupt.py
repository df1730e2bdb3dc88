"""Ctrl-C in the first seconds: exit code 130, no traceback, nothing left running."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.cluster import broker

SCRIPT = Path(sys.executable).with_name("braid")


def default_interrupt() -> None:
    """A shell ignores SIGINT for what it runs in the background, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(words: tuple[str, ...], seen: Callable[[bytes], bool], **env: str) -> tuple[int, str]:
    """Run a command and send SIGINT to its process group when its standard error has what is wanted."""
    process = subprocess.Popen(
        [SCRIPT, *words], env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=default_interrupt,  # noqa: PLW1509 - nothing else runs in this process
    )  # fmt: skip
    assert process.stderr is not None
    with process, process.stderr as lines:
        assert any(seen(chunk) for chunk in iter(lambda: os.read(lines.fileno(), 4096), b"")), "it ended before"
        os.killpg(process.pid, signal.SIGINT)
        rest = lines.read().decode(errors="replace")
        return process.wait(), rest


@pytest.mark.parametrize("module", ["streams.cli", "schemas.errors"])
@pytest.mark.parametrize("words", [("--help",), ("demo",), ("run", "lines.ndjson", "--out", "out"), ("worker",)])
def test_an_interrupted_import_is_no_traceback(module: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """PYTHONVERBOSE says when a module is found, before it is executed: there the signal comes."""
    wanted = f"/{module.replace('.', '/')}".encode()
    code, rest = interrupted(words, lambda line: wanted in line, PYTHONVERBOSE="1", BRAID_STATE_DIR=str(tmp_path))
    assert (code, "Traceback" in rest) == (130, False), rest[-3000:]


@pytest.mark.parametrize("module", ["orjson", "pydantic_core"])
def test_an_interrupt_while_a_command_loads_is_no_traceback(module: str, tmp_path: Path) -> None:
    """Extension modules among them: orjson would crash."""
    wanted = f"/{module.replace('.', '/')}".encode()
    code, rest = interrupted(("doctor",), lambda line: wanted in line, PYTHONVERBOSE="1", BRAID_STATE_DIR=str(tmp_path))
    assert (code, "Traceback" in rest, "Fatal" in rest) == (130, False, False), rest[-3000:]


@pytest.mark.kafka
def test_an_interrupted_start_of_the_demos_broker_leaves_nothing_running(tmp_path: Path) -> None:
    env = {"BRAID_STATE_DIR": str(tmp_path), "BRAID_KAFKA": ""}
    code, rest = interrupted(("demo", "--out", str(tmp_path / "demo")), lambda line: b"starting" in line, **env)
    assert code == 130
    assert len(rest.splitlines()) <= 1, rest
    assert not any(service.running for service in broker.status(tmp_path))
