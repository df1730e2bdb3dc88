"""Confinement of commands, as a standalone script (`python -I -S confine_adapter.py ...`) that imports no code of the
product.

With namespaces (`hold DESCRIPTOR`; Linux, unprivileged user namespaces or root): a process that lives as long as a
sandbox and starts its commands, see `launch_adapter`.

Without them (`keep SPEC`, only where it is configured): one command with limits, no capabilities, and a keeper that adopts
orphans (a child subreaper) and kills all of its descendants at the end. The network and the user's files are within reach.

Trouble before the command starts is written to the status descriptor; an exit code is always the command's own. If the
machine is itself a sandbox (e2b), the same keeper runs there: without a parent to die with, and with standard error as
the descriptor.
"""

import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

for package in ("agents", "agents.fork"):  # without their __init__, which loads the product
    sys.modules.setdefault(package, ModuleType(package)).__path__ = [
        str(Path(__file__).parents[2] / package.replace(".", "/"))
    ]

from agents.fork.kernel_adapter import (  # noqa: E402 - the packages above
    PR_SET_CHILD_SUBREAPER,
    become,
    call,
    die_with_parent,
    drop_capabilities,
    execute,
    exit_code,
    limit,
    lower,
    reap,
)


def main() -> NoReturn:
    """Hold a sandbox, or keep one command and exit as it did."""
    if sys.argv[1] == "hold":  # its modules are missing if the machine is the sandbox
        from agents.fork.launch_adapter import hold

        os._exit(hold(socket.socket(fileno=int(sys.argv[2]))))
    spec = json.loads(sys.argv[2])
    status = spec["status_fd"]
    if status > 2:
        os.set_inheritable(status, False)
    try:
        code = keep(spec)
    except OSError as error:
        os.write(status, str(error).encode())
        code = 125
    os._exit(code)


def keep(spec: dict[str, Any]) -> int:
    """Run the command with limits only, and kill every descendant at the end."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        kill_descendants()
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    die_with_parent(signal.SIGTERM, spec["parent"])
    main_process = os.fork()
    if main_process == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        limit(spec)
        if spec["parent"] is None or spec["uid"]:  # processes of other users are not counted
            lower(resource.RLIMIT_NPROC, spec["processes"])
        drop_capabilities()  # for a runner that is root: the command could change the machine's mounts otherwise
        if spec["uid"]:
            become(spec["uid"])
        execute(spec["command"], spec["root"], os.environ)
    code = exit_code(reap(main_process))
    kill_descendants()
    return code


def kill_descendants() -> None:
    """Kill until none is left; orphans of killed processes become children of this process, and are killed next."""
    while True:
        for pid in children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def children() -> list[int]:
    """The processes whose parent this one is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main()
