"""Probe sandboxes as the user who runs this, and print what was reached, by name, as JSON.

Beside the probes that run inside a sandbox (`probe_inside`), it looks at what they left behind.
"""

import asyncio
import ctypes
import json
import os
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from agents.fork.local_adapter import LocalSandboxes
from agents.fork.sandbox import Harness, Limits
from agents.fork.sandbox_adapter import LocalOptions, LocalSandbox
from agents.workspace.files import File

INSIDE = Path(__file__).with_name("probe_inside.py").read_bytes()
WORKSPACE_MB, PROCESSES = 32, 64
LIMITS = Limits(timeout_s=120, processes=PROCESSES)
KEYCTL_UNLINK, SESSION_KEYRING = 9, -3
SYS_ADD_KEY, SYS_KEYCTL = (217, 219) if os.uname().machine in ("aarch64", "riscv64") else (248, 250)

ALONE = (
    "settings", "told", "keys", "files", "ports", "kernel", "mounts", "powers", "processes", "bomb", "disk", "core", "daemon",
)  # fmt: skip
FROM_WORK = ("settings", "keys", "files", "ports", "kernel", "mounts", "powers", "processes", "core")

REPORTER = """
import json, os, socket, subprocess, sys
asked = json.loads(sys.argv[1])
open("/tmp/" + asked["secret"], "w").close()
held = socket.socket(socket.AF_UNIX)
held.bind("\\0" + asked["abstract"])
held.listen()
named = socket.socket(socket.AF_UNIX)
named.bind(asked["path"])
named.listen()
done = subprocess.run(["work", "python", "probe.py"], stdout=subprocess.PIPE, text=True)
open("/logs/verifier/reached", "w").write(done.stdout)
"""


async def main() -> None:
    """Probe, look at what is left, print."""
    with tempfile.TemporaryDirectory() as folder, machine(Path(folder)) as asked:
        before = settings()
        local = await LocalSandboxes.open(Path(folder, "sandboxes"), LocalOptions(workspace_mb=WORKSPACE_MB))
        try:
            other, probed = await local.create(), await local.create()
            await other.write(asked["secret"], b"")
            asked["others"] = [str(other._scratch), str(other._folder)]
            reached = await alone(probed, asked)
            reached |= {f"work: {name}": found for name, found in (await from_work(probed, asked)).items()}
            await probed.reset()
            reached["reset"] = list(await probed.files())
        finally:
            await local.close()
        reached["left"] = left(asked, Path(folder, "sandboxes"))
        reached["unchanged"] = [name for name, value in settings().items() if before[name] != value]
    sys.stdout.write(json.dumps(reached))


async def alone(sandbox: LocalSandbox, asked: dict[str, Any]) -> dict[str, Any]:
    """The probes as an agent's command; each in a command of its own."""
    await sandbox.write("probe.py", INSIDE)
    reached: dict[str, Any] = {}
    for name in ALONE:
        await sandbox.write("asked.json", json.dumps(asked | {"probes": [name]}).encode())
        done = await sandbox.run(["python", "probe.py"], LIMITS)
        reached |= json.loads(done.stdout.text) if done.exit_code == 0 else {name: [done.stderr.text[-800:]]}
    return reached


async def from_work(sandbox: LocalSandbox, asked: dict[str, Any]) -> dict[str, Any]:
    """The probes as code under test, whose tests have a file, sockets and a process to be found."""
    asked = asked | {"probes": FROM_WORK, "path": f"/tmp/{uuid.uuid4().hex}", "abstract": uuid.uuid4().hex}
    asked |= {"pid": None, "mark": "test_mark"}
    await sandbox.write("asked.json", json.dumps(asked).encode())
    tests = {"test_mark.py": File(REPORTER.encode()), asked["secret"]: File(b"")}
    command = ["python", "test_mark.py", json.dumps(asked)]
    done = await sandbox.run(command, LIMITS, {}, Harness(tests, apart=True))
    text = done.reports["reached"].content
    return dict(json.loads(text)) if text else {"run": [done.stderr.text[-800:]]}


@contextmanager
def machine(folder: Path) -> Iterator[dict[str, Any]]:
    """Things of the machine that a sandbox must not reach: listeners, a file, a key, this process."""
    name = uuid.uuid4().hex
    secret, key = folder / f"secret-{name}", f"braid-probe-{name}"
    secret.touch()
    libc = ctypes.CDLL(None)
    number = libc.syscall(SYS_ADD_KEY, b"user", key.encode(), b"1", 1, SESSION_KEYRING)
    with (
        socket.create_server(("", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind(f"\0{name}")
        named.bind(str(folder / "socket"))
        for each in (abstract, named):
            each.listen()
        yield {
            "secret": secret.name, "runner": str(folder), "pid": os.getpid(), "mark": "probe_run", "key": key,
            "keyctl": SYS_KEYCTL, "port": tcp.getsockname()[1], "address": own_address(), "abstract": name,
            "path": str(folder / "socket"), "processes": PROCESSES, "daemon": f"60.{uuid.uuid4().int % 10**12}",
            "folders": {"/workspace": WORKSPACE_MB, "/tmp": 256, "/dev/shm": 64},
        }  # fmt: skip
    if number > 0:
        libc.syscall(SYS_KEYCTL, KEYCTL_UNLINK, number, SESSION_KEYRING)


def own_address() -> str:
    """An address of this machine beside loopback, if there is one."""
    addresses = (
        each.address for all_of in psutil.net_if_addrs().values() for each in all_of if each.family == socket.AF_INET
    )
    return next((address for address in addresses if not address.startswith("127.")), "127.0.0.1")


def settings() -> dict[str, str]:
    """Settings of the machine, its name and its mounts."""
    names = (
        "kernel/core_pattern", "kernel/sysrq", "kernel/panic", "kernel/modprobe", "kernel/hostname", "fs/suid_dumpable",
        "fs/file-max", "vm/overcommit_memory", "vm/swappiness", "user/max_user_namespaces", "net/ipv4/ip_forward",
    )  # fmt: skip
    found = {name: Path("/proc/sys", name).read_text() for name in names if os.access(f"/proc/sys/{name}", os.R_OK)}
    return found | {"mounts": Path("/proc/self/mounts").read_text(), "name": socket.gethostname()}


def left(asked: dict[str, Any], sandboxes: Path) -> list[str]:
    """Processes and files that outlive the sandboxes."""
    alive = [each.pid for each in psutil.process_iter(["cmdline"]) if asked["daemon"] in (each.info["cmdline"] or [])]
    ours = [each.pid for each in psutil.Process().children(recursive=True)]
    return [*(f"process {pid}" for pid in (*alive, *ours)), *(str(place) for place in sandboxes.iterdir())]


if __name__ == "__main__":
    asyncio.run(main())
