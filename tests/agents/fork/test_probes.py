"""Probes: the things of the machine that commands in a local sandbox can reach, leave and change: nothing, for every
user that starts it.

The probes run as root and as an ordinary user; where the suite itself runs as an ordinary user, only as that one.
"""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from agents.fork.uid_adapter import FIRST_UID
from tests.agents.fork.ordinary_user import REPOSITORY

USERS = ("root", "user") if os.geteuid() == 0 else ("user",)
RUN = [sys.executable, "-m", "tests.agents.fork.probe_run"]
AS_USER = [sys.executable, "-m", "tests.agents.fork.ordinary_user"] if os.geteuid() == 0 else []


@cache
def probed(user: str) -> dict[str, Any]:
    """The names of successful probes; run once for each user."""
    command = [*AS_USER, *RUN] if user == "user" else RUN
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(params=USERS)
def reached(request: pytest.FixtureRequest) -> dict[str, Any]:
    return probed(request.param)


def test_the_machines_settings_cannot_be_written_and_are_as_before(reached: dict[str, Any]) -> None:
    """No file below /proc/sys opens for writing, nor do sysrq and its like; /sys is not there."""
    assert (reached["settings"], reached["told"], reached["unchanged"]) == ([], [], [])


def test_keys_and_files_of_the_machine_and_other_branches_are_out_of_sight(reached: dict[str, Any]) -> None:
    """No private key, no file of the runner or of another sandbox, no key of the runner's session."""
    assert (reached["keys"], reached["files"]) == ([], [])


def test_no_port_or_socket_of_the_machine_answers(reached: dict[str, Any]) -> None:
    """Loopback, the machine's own address, abstract and plain sockets; no kinds of sockets that have no namespaces."""
    assert (reached["ports"], reached["kernel"]) == ([], [])


def test_nothing_can_be_mounted_or_gained(reached: dict[str, Any]) -> None:
    """No mounts, no user namespace, no capabilities, no set-user-id programs, no limit that can be raised."""
    assert (reached["mounts"], reached["powers"]) == ([], [])


def test_other_processes_cannot_be_signalled_or_traced(reached: dict[str, Any]) -> None:
    """Neither the runner nor the process that keeps the command."""
    assert reached["processes"] == []


def test_processes_and_disk_are_limited_while_a_command_runs(reached: dict[str, Any]) -> None:
    """A fork bomb, and files of every kind until the workspace, /tmp and /dev/shm are full; nothing else can be written."""
    assert (reached["bomb"], reached["disk"]) == ([], [])


def test_nothing_is_left(reached: dict[str, Any]) -> None:
    """No core dump, no daemon, no file after a reset, no process and no folder at the end."""
    assert (reached["core"], reached["reset"], reached["left"]) == ([], [], [])


@pytest.mark.parametrize("user", USERS)
def test_code_under_test_reaches_nothing_of_its_tests(user: str) -> None:
    """From `work`: not the reporter's process, files, sockets or tests, and no more of the machine than any command."""
    found = {name: what for name, what in probed(user).items() if name.startswith("work: ")}
    assert found == {name: [] for name in found}
    assert len(found) == 9


PROCESSES = """
import asyncio, tempfile
from pathlib import Path
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox_adapter import LocalOptions
from agents.fork.sandbox import Limits
async def main():
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    made = await LocalSandboxes.open(folder / "s", LocalOptions("processes"))
    sandbox = await made.create()
    await sandbox.write("a", b"")
    done = await sandbox.run(["sh", "-c", "id -u; touch b; ls"], Limits(processes=16))
    bomb = await sandbox.run(["sh", "-c", "for i in $(seq 64); do sleep 5 & done"], Limits(processes=16))
    print(made.runs_as, *done.stdout.text.split(), "fork" in bomb.stderr.text)
    await made.close()
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite does not run as root, who alone can become another user")
def test_without_namespaces_root_gives_commands_another_user() -> None:
    """Where that user can read Python and the workspace; a limit of processes holds then, too."""
    command = [*AS_USER, "--root", sys.executable, "-c", PROCESSES]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    runs_as, uid, *files, limited = done.stdout.split()
    assert (runs_as, int(uid) >= FIRST_UID, files, limited) == ("others", True, ["a", "b"], "True"), done
