"""One command, confined: started as a script of its own (`python -I -S confine_adapter.py SPEC`).

With namespaces (Linux, unprivileged user namespaces or root): see `views_adapter` and `launch_adapter`.

Without them (`"isolation": "processes"`, only where it is configured): limits, no capabilities, and a keeper that adopts
orphans (a child subreaper) and kills all of its descendants at the end. The network and this user's files are within reach.

Trouble before the command starts is written to the status descriptor; an exit code is always the command's own. Where the
machine is itself a sandbox (e2b), the same keeper runs there: no parent to die with, standard error as the descriptor.
"""

import json
import os
import resource
import signal
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
    call,
    die_with_parent,
    drop_capabilities,
    execute,
    limit,
    lower,
    wait_for,
)


def main() -> NoReturn:
    """Confine, run, clean up, and exit as the command did."""
    spec = json.loads(sys.argv[1])
    status = spec["status_fd"]
    if status > 2:
        os.set_inheritable(status, False)
    try:
        code = in_namespaces(spec) if spec["isolation"] == "namespaces" else in_processes(spec)
    except OSError as error:
        os.write(status, str(error).encode())
        code = 125
    os._exit(code)


def in_namespaces(spec: dict[str, Any]) -> int:
    """Run the command in namespaces of its own; the code for it is not there where the machine is the sandbox."""
    from agents.fork.launch_adapter import run_closed

    return run_closed(spec)


def in_processes(spec: dict[str, Any]) -> int:
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
        if spec["parent"] is None:  # a machine of its own: no other user's processes are counted
            lower(resource.RLIMIT_NPROC, spec["processes"])
        drop_capabilities()  # for a runner that is root: the command could change the machine's mounts otherwise
        execute(spec["command"], spec["root"])
    code = wait_for(main_process)
    kill_descendants()
    return code


def kill_descendants() -> None:
    """Kill until none is left; orphans of the killed become children of this process, and are next."""
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
