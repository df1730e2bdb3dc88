"""Tests that run on a workspace: beside it, or apart from it with the program `work` between the two."""

import os
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox import MAX_REPORTS, CommandResult, Ended, Harness, Limits, SandboxError
from agents.fork.sandbox_adapter import LocalSandbox
from agents.workspace.files import File
from tests.agents.fork.test_sandboxes import gone

QUICK = Limits(timeout_s=30)
START = ["sh", "-c", 'exec sh "$TEST_DIR/test.sh"']


@pytest.fixture
async def closed(local: LocalSandboxes) -> LocalSandbox:
    made = await local.create()
    await made.put({"answer.txt": File(b"42\n")})
    return made


async def report_of(sandbox: Any, script: str, *, apart: bool = True, **files: str) -> CommandResult:
    """Run a test.sh, with files of Python beside it."""
    tests: Mapping[str, File] = {"test.sh": File(script.encode())} | {
        f"{name}.py": File(text.encode()) for name, text in files.items()
    }
    done: CommandResult = await sandbox.run(START, QUICK, {}, Harness(tests, apart))
    return done


# -- in every sandbox ------------------------------------------------------------------------------------------------------


async def test_tests_and_reports_lie_outside_of_the_workspace(sandboxes: Any) -> None:
    """Tests beside the work see it, their reports come back, and the workspace holds neither."""
    sandbox = await sandboxes.create()
    await sandbox.put({"answer.txt": File(b"42\n")})
    done = await report_of(sandbox, 'mkdir "$LOGS_DIR/a"; cp answer.txt "$LOGS_DIR/a/b"; ls', apart=False)
    assert (done.exit_code, done.stdout.text, done.reports) == (0, "answer.txt\n", {"a/b": File(b"42\n")})
    again = await report_of(sandbox, 'ls -A "$LOGS_DIR" "$TEST_DIR" | wc -w', apart=False)
    assert (again.reports, await sandbox.files()) == ({}, {"answer.txt": File(b"42\n")})
    await sandbox.dispose()


async def test_without_namespaces_tests_do_not_run_apart(sandboxes: Any) -> None:
    """A sandbox that cannot keep the work away from its tests says so, and what to do; no weaker run takes its place."""
    sandbox = await sandboxes.create()
    if sandbox.root == "/workspace":
        assert (await report_of(sandbox, "true")).exit_code == 0
    else:
        with pytest.raises(SandboxError, match=r"namespaces|local sandboxes"):
            await report_of(sandbox, "true")
    await sandbox.dispose()


# -- apart -----------------------------------------------------------------------------------------------------------------


async def test_the_reporter_has_the_tests_and_no_workspace(closed: LocalSandbox) -> None:
    """Tests cannot import the work by accident, cannot be written, and leave reports."""
    done = await report_of(closed, "pwd; ls; ls -d /workspace; echo x > /tests/y; echo ok > /logs/verifier/report")
    assert done.stdout.text == "/tests\ntest.sh\n"
    assert ("/workspace" in done.stderr.text, "Read-only" in done.stderr.text) == (True, True)
    assert done.reports == {"report": File(b"ok\n")}


async def test_work_runs_on_the_workspace_and_sees_nothing_of_the_tests(closed: LocalSandbox) -> None:
    """Its files stay for the next command; tests, reports, helper and other processes are not there."""
    script = """
    export EXPECTED=7; sleep 60 & echo ok > /logs/verifier/report; echo mine > /tmp/mine
    work sh -c 'pwd; cat answer.txt; echo 43 > answer.txt; ls -d /tests /logs /run/braid /tmp/mine'
    work sh -c 'cat answer.txt; set -- /proc/[0-9]*; echo $#; ls /proc/self/fd | wc -l'
    """
    done = await report_of(closed, script)
    assert done.stdout.text.split() == ["/workspace", "42", "43", "2", "4"]
    assert done.stderr.text.count("No such file") == 4


async def test_descriptors_are_passed_by_name_only(closed: LocalSandbox) -> None:
    """A named pipe end arrives under its number; another open one does not."""
    program = """
import os, subprocess
answers, inside = os.pipe()
other, hidden = os.pipe()
command = ["work", "--fd", str(inside), "python", "-c", f'''
import os
os.write({inside}, b"answer")
print(sorted(int(each) for each in os.listdir("/proc/self/fd")))
''']
done = subprocess.run(command, pass_fds=(inside, hidden), capture_output=True, text=True)
print(os.read(answers, 9), eval(done.stdout) == [0, 1, 2, 3, inside], done.stderr)  # 3: the listing itself
"""
    done = await report_of(closed, "python /tests/run.py", run=program)
    assert done.stdout.text == "b'answer' True \n", done


async def test_files_and_folders_are_copied_not_passed(closed: LocalSandbox) -> None:
    """A descriptor of the tests' tree would lead into it: the command gets the end of a pipe."""
    script = """
    echo in > /tmp/in; work sh -c 'cat; stat -Lc %F /dev/stdin /dev/stdout' < /tmp/in > /tmp/out; cat /tmp/out
    work --fd 5 sh -c 'cd /proc/self/fd/5/ && ls' 5< /tests; echo $?
    """
    done = await report_of(closed, script)
    assert done.stdout.text.split("\n") == ["in", "fifo", "fifo", "2", ""], done


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", -11), ("kill -KILL $$", -9), ("exec no-such-program", 127)],
)
async def test_work_ends_as_its_command_did(closed: LocalSandbox, command: str, code: int) -> None:
    """Exit codes and signals are the command's."""
    program = f"import subprocess; print(subprocess.run(['work', 'sh', '-c', {command!r}]).returncode)"
    assert (await report_of(closed, "python /tests/run.py", run=program)).stdout.text == f"{code}\n"


async def test_signals_reach_the_command(closed: LocalSandbox) -> None:
    """A server can end in its own way."""
    program = """
import signal, subprocess
command = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done"
running = subprocess.Popen(["work", "sh", "-c", command], stdout=subprocess.PIPE, text=True)
running.stdout.readline()
running.terminate()
print(running.stdout.read(), running.wait())
"""
    assert (await report_of(closed, "python /tests/run.py", run=program)).stdout.text == "bye\n 3\n"


@pytest.mark.parametrize("end", ["kill -KILL $!", "kill -TERM $!", "kill -INT $!; kill -TERM $!"])
async def test_nothing_of_a_command_outlives_its_work(closed: LocalSandbox, end: str) -> None:
    """Every end of `work` ends the command with all it has started, also one that ignores signals."""
    mark = f"60.{uuid.uuid4().int % 10**12}"
    script = f"""
    work sh -c "trap '' TERM INT; setsid sleep {mark} & echo up > here; sleep {mark}" & while ! work test -e here; do :; done
    {end}; wait $!; while cat /proc/[0-9]*/cmdline | grep -q "{mark}"; do :; done; echo gone
    """
    done = await report_of(closed, script)
    assert (done.stdout.text, done.ended) == ("gone\n", Ended.EXITED), done


async def test_commands_end_with_the_reporter(closed: LocalSandbox) -> None:
    """A server that was left running is gone when the tests are over."""
    mark = f"60.{uuid.uuid4().int % 10**12}"
    done = await report_of(closed, f"work setsid sleep {mark} & while ! work true; do :; done; echo over")
    assert done.stdout.text == "over\n"
    await gone(mark)


async def test_a_server_of_the_work_is_reached_over_loopback(closed: LocalSandbox) -> None:
    """Tests and work share one loopback; abstract sockets of the tests are not in the work's reach."""
    program = """
import socket, subprocess
code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); s.accept()[0].sendall(b'hello')"
running = subprocess.Popen(["work", "python", "-c", code], stdout=subprocess.PIPE, text=True)
print(socket.create_connection(("127.0.0.1", int(running.stdout.readline()))).recv(5))
"""
    assert (await report_of(closed, "python /tests/run.py", run=program)).stdout.text == "b'hello'\n"


async def test_reports_are_plain_files_few_and_small(closed: LocalSandbox) -> None:
    """Links are never followed; a report that is too much to read is none."""
    done = await report_of(closed, "cd /logs/verifier; ln -s /etc/passwd a; mkfifo b; ln -s / c; echo 1 > d")
    assert done.reports == {"d": File(b"1\n")}
    assert (await report_of(closed, f"cd /logs/verifier; seq {MAX_REPORTS + 1} | xargs touch")).reports == {}
    assert (await report_of(closed, "truncate -s 33M /logs/verifier/a; echo 1 > /logs/verifier/b")).reports == {}


async def test_a_strict_umask_of_the_runner_closes_nobody_out(local: LocalSandboxes) -> None:
    """Tests run as another user than the runner's; what is made for them can be read."""
    before = os.umask(0o077)
    try:
        sandbox = await local.create()
        done = await report_of(sandbox, "umask; work true && echo ok > /logs/verifier/report")
    finally:
        os.umask(before)
    assert (done.stdout.text, done.reports) == ("0022\n", {"report": File(b"ok\n")}), done
