"""The behaviour of every sandbox, and how well the local one is closed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.fork.local_adapter import LocalSandboxes, sweep
from agents.fork.sandbox import MAX_OUTPUT, CommandResult, Ended, Limits, SandboxError
from agents.fork.sandbox_adapter import LocalSandbox
from agents.workspace.files import File, FileProblemError

QUICK = Limits(timeout_s=30)


@pytest.fixture
async def sandbox(sandboxes: Any) -> AsyncIterator[Any]:
    made = await sandboxes.create()
    yield made
    await made.dispose()


async def sh(sandbox: Any, script: str, limits: Limits = QUICK) -> CommandResult:
    done: CommandResult = await sandbox.run(["sh", "-c", script], limits)
    return done


def alive(mark: str) -> list[int]:
    """Processes that carry a mark in their command line."""
    return [process.pid for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or [])]


async def gone(mark: str) -> None:
    until = time.monotonic() + 30  # by itself it would live for 60 seconds
    while alive(mark):
        assert time.monotonic() < until, f"still alive: {alive(mark)}"
        await asyncio.sleep(0.05)


# -- every sandbox ---------------------------------------------------------------------------------------------------------


async def test_files_go_in_and_come_out(sandbox: Any) -> None:
    """Content, folders and the executable bit survive; commands see what was written, and what they write is seen."""
    await sandbox.put({"a/b/run.sh": File(b"#!/bin/sh\necho ran > c.txt\n", executable=True), "ü.txt": File(b"\xff\0")})
    done = await sh(sandbox, "a/b/run.sh && ls")
    assert (done.exit_code, done.stdout.text.split()) == (0, ["a", "c.txt", "ü.txt"])
    assert await sandbox.files() == {
        "a/b/run.sh": File(b"#!/bin/sh\necho ran > c.txt\n", executable=True),
        "c.txt": File(b"ran\n"),
        "ü.txt": File(b"\xff\0"),
    }
    assert list(await sandbox.files("a/b")) == ["a/b/run.sh"]
    assert await sandbox.read("c.txt") == b"ran\n"


async def test_a_look_at_everything_leaves_no_name_out(sandboxes: Any) -> None:
    """Folders that a snapshot leaves out, links and pipes; only what is asked for."""
    sandbox = await sandboxes.create()
    await sandbox.put(
        {"node_modules/a.js": File(b"1", executable=True), "x/__pycache__/b.pyc": File(b"2"), "c": File(b"3")}
    )
    await sandbox.run(["sh", "-c", "mkfifo x/pipe; ln -s ../c x/in; ln -s /etc/passwd x/out"], Limits(timeout_s=20))
    assert await sandbox.everything(lambda path: path != "c") == {
        "node_modules/a.js": File(b"1", executable=True),
        "x/__pycache__/b.pyc": File(b"2"),
        "x/in": File(b"../c", link=True),
        "x/out": None,
        "x/pipe": None,
    }
    await sandbox.dispose()


async def test_a_missing_file_is_the_callers_problem(sandbox: Any) -> None:
    """A file that is not there has a code that an agent can be told."""
    with pytest.raises(FileProblemError) as caught:
        await sandbox.read("nowhere.txt")
    assert caught.value.code == "not_found"
    with pytest.raises(FileProblemError):
        await sandbox.files("nowhere")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "a\0b"])
async def test_paths_do_not_lead_outside(sandbox: Any, path: str) -> None:
    """No path leads out of the workspace, for reading or writing."""
    with pytest.raises(FileProblemError):
        await sandbox.read(path)
    with pytest.raises(FileProblemError):
        await sandbox.write(path, b"x")


async def test_exit_codes_are_results(sandbox: Any) -> None:
    """A command that fails, is not there, or is killed is a result; both outputs come with it."""
    done = await sh(sandbox, "echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.ended, done.stdout.text, done.stderr.text) == (3, Ended.EXITED, "out\n", "err\n")
    assert (await sandbox.run(["no-such-command"], QUICK)).exit_code == 127
    assert (await sh(sandbox, "kill -9 $$")).exit_code == 137


async def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(sandbox: Any) -> None:
    """The time limit ends a command, its children, and daemons in sessions of their own."""
    mark = f"60.{uuid.uuid4().int % 10**12}"
    began = time.monotonic()
    done = await sh(sandbox, f"setsid sleep {mark} & sleep {mark} & echo begun; sleep {mark}", Limits(timeout_s=1.5))
    assert (done.ended, done.exit_code, done.stdout.text) == (Ended.TIMEOUT, None, "begun\n")
    assert time.monotonic() - began < 15
    await gone(mark)


async def test_nothing_is_left_of_a_command_that_returned(sandbox: Any) -> None:
    """A double fork with a session of its own does not outlive its command."""
    mark = f"60.{uuid.uuid4().int % 10**12}"
    done = await sh(sandbox, f"(setsid sh -c 'sleep {mark} & sleep {mark}' >/dev/null 2>&1 &) ; sleep 0.3; echo done")
    assert (done.exit_code, done.stdout.text) == (0, "done\n")
    await gone(mark)


async def test_a_cancelled_command_is_stopped(sandbox: Any) -> None:
    """Cancelling stops the command before the cancellation goes on."""
    mark = f"60.{uuid.uuid4().int % 10**12}"
    running = asyncio.create_task(sh(sandbox, f"setsid sleep {mark} & sleep {mark}"))
    while not alive(mark):
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(mark)


async def test_a_command_left_running_ends_with_its_use(sandbox: Any) -> None:
    """Giving a sandbox back stops what runs in it."""
    mark = f"60.{uuid.uuid4().int % 10**12}"
    running = asyncio.create_task(sh(sandbox, f"sleep {mark}"))
    while not alive(mark):
        await asyncio.sleep(0.05)
    await sandbox.reset()
    await gone(mark)
    await asyncio.wait([running])
    assert running.exception() is not None or running.result().exit_code != 0
    assert await sandbox.files() == {}


async def test_output_is_bounded_and_its_digest_is_of_all_of_it(sandbox: Any) -> None:
    """Megabytes keep their two ends; the length and the digest are those of the whole."""
    done = await sh(sandbox, "echo first; yes | head -c 3000000; echo; echo last")
    whole = b"first\n" + b"y\n" * 1_500_000 + b"\nlast\n"
    assert len(done.stdout.text) < MAX_OUTPUT + 100
    assert done.stdout.text.startswith("first\ny\n")
    assert done.stdout.text.endswith("y\n\nlast\n")
    assert (done.stdout.n_bytes, done.stdout.digest) == (len(whole), sha256(whole).hexdigest())


async def test_memory_cpu_and_file_sizes_are_limited(sandbox: Any) -> None:
    """Too much memory, processor time or disk ends a command, not the machine."""
    done = await sh(sandbox, "python3 -c 'bytearray(600 * 2**20)'", Limits(memory_mb=200))
    assert done.exit_code != 0
    assert "MemoryError" in done.stderr.text
    assert (await sh(sandbox, "python3 -c 'while True: pass'", Limits(cpu_s=1, timeout_s=20))).exit_code not in (
        0,
        None,
    )
    await sh(sandbox, "head -c 5000000 /dev/zero > big", Limits(file_mb=1))
    assert len(await sandbox.read("big")) == 2**20


async def test_reset_leaves_nothing_of_the_last_use(sandbox: Any) -> None:
    """Hidden files, links and folders without permissions are gone for the next one, and it works as before."""
    await sh(sandbox, "mkdir -p x/y .hidden && touch x/y/z .hidden/f && ln -s / out && chmod 000 x/y x")
    await sandbox.reset()
    assert await sandbox.files() == {}
    assert (await sh(sandbox, "ls -A | wc -l")).stdout.text.strip() == "0"


async def test_disposing_twice_is_fine_and_a_gone_sandbox_says_so(sandbox: Any) -> None:
    """A discarded sandbox cannot be used, and can be discarded again."""
    await sandbox.dispose()
    await sandbox.dispose()
    with pytest.raises(SandboxError):
        await sandbox.run(["true"], QUICK)


# -- the local one ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def closed(local: LocalSandboxes) -> LocalSandbox:
    return await local.create()


async def test_there_is_no_network_but_loopback(closed: LocalSandbox) -> None:
    """Nothing outside can be reached; a server and its client inside can talk."""
    script = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hello")).start()
print(socket.create_connection(server.getsockname()).recv(5))
try: socket.create_connection(("192.0.2.1", 80), timeout=3)
except OSError as error: print(error.errno)
"""
    done = await closed.run(["python", "-c", script], QUICK)
    assert done.stdout.text == "b'hello'\n101\n"  # ENETUNREACH


async def test_the_machines_files_are_out_of_sight(closed: LocalSandbox, tmp_path: Path) -> None:
    """Homes, other sandboxes and the machine's secrets are not there; its programs cannot be changed."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    # The interpreter that tests run with is in sight, wherever this project lies.
    hidden = [folder for folder in ("/home", "/root/.ssh", "/var") if not Path(sys.prefix).is_relative_to(folder)]
    done = await sh(
        closed, f"cat {secret} /etc/shadow; ls {' '.join(hidden)}; touch /usr/bin/x /x; echo x > /etc/passwd"
    )
    assert done.stdout.text == ""
    assert "No such file" in done.stderr.text
    assert (await sh(closed, "pwd; touch here; ls")).stdout.text == "/workspace\nhere\n"


async def test_a_python_in_tmp_is_brought_along_and_nothing_beside_it(
    local: LocalSandboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People try things in /tmp; other files there are left alone."""
    ours, others = tmp_path / "python" / "here", tmp_path / "others"
    ours.parent.mkdir()
    for file in (ours, others):
        file.write_text("found")
    monkeypatch.setattr(sys, "prefix", str(ours.parent))
    closed = await local.create()
    done = await sh(closed, f"cat {ours}; touch {ours}; cat {others}; touch /tmp/mine && echo ', and mine'")
    assert done.stdout.text == "found, and mine\n"
    refused = any(reason in done.stderr.text for reason in ("Read-only", "Permission denied"))
    assert (refused, "No such file" in done.stderr.text) == (True, True)


async def test_other_processes_cannot_be_seen_or_killed(closed: LocalSandbox) -> None:
    """The runner's number means nothing inside, and only the sandbox's own processes are in sight."""
    done = await sh(closed, f"kill -9 {os.getpid()} 2>&1; ls /proc | grep -c '^[0-9]'")
    assert "No such process" in done.stdout.text
    assert int(done.stdout.text.split()[-1]) < 8


async def test_root_inside_has_no_powers(closed: LocalSandbox) -> None:
    """No capabilities: no mounts, no devices, no namespaces of one's own with powers over this one."""
    done = await sh(closed, "grep CapEff /proc/self/status; mount -t tmpfs x /workspace; mknod d c 1 3; echo $?")
    assert "0000000000000000" in done.stdout.text
    assert done.stdout.text.strip().endswith("1")


async def test_commands_see_nothing_of_the_runners_environment(
    closed: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that the runner holds stay with it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    assert "sk-ant" not in (await sh(closed, "env; cat /proc/1/environ")).stdout.text


async def test_links_that_lead_outside_lead_nowhere(closed: LocalSandbox, tmp_path: Path) -> None:
    """The runner's own reading and writing is not led out of the workspace by an agent's links."""
    (tmp_path / "secret").write_text("s3cret")
    await sh(closed, f"ln -s {tmp_path}/secret leak; ln -s {tmp_path} folder; ln -s inner ok; echo 1 > inner")
    for path in ("leak", "folder/secret"):
        with pytest.raises(FileProblemError):
            await closed.read(path)
        with pytest.raises(FileProblemError):
            await closed.write(path, b"changed")
    assert (tmp_path / "secret").read_text() == "s3cret"
    assert await closed.files() == {"inner": File(b"1\n"), "ok": File(b"inner", link=True)}


async def test_a_pipe_does_not_keep_the_runner_waiting(closed: LocalSandbox) -> None:
    """Only plain files are read."""
    await sh(closed, "mkfifo pipe")
    with pytest.raises(FileProblemError):
        await asyncio.wait_for(closed.read("pipe"), 5)
    assert await closed.files() == {}


RUNNER = """
import asyncio, sys
from pathlib import Path
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox_adapter import LocalOptions
from agents.fork.sandbox import Limits
async def main():
    made = await LocalSandboxes.open(Path(sys.argv[1]), LocalOptions(sys.argv[3]))
    sandbox = await made.create()
    await sandbox.run(["sh", "-c", f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}"], Limits())
asyncio.run(main())
"""


@pytest.mark.parametrize("isolation", ["namespaces", "processes"])
async def test_a_killed_runner_leaves_no_process_and_the_next_one_sweeps(tmp_path: Path, isolation: str) -> None:
    """SIGKILL of the runner ends everything in its sandboxes; its folder goes when the next runner starts."""
    mark, base = f"60.{uuid.uuid4().int % 10**12}", tmp_path / "s"
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(base), mark, isolation], cwd=Path(__file__).parents[3])
    while len(alive(mark)) < 2:
        await asyncio.sleep(0.05)
        assert runner.poll() is None
    assert sweep(base) == [], "the folder of a living runner was swept"
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    await gone(mark)
    next_one = await LocalSandboxes.open(base)
    assert len(list(base.iterdir())) == 2, "a folder of the dead runner is still there"
    await next_one.close()
    assert list(base.iterdir()) == []
