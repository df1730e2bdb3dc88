"""`work [--fd N]... COMMAND...`: run a command on the workspace, from tests that cannot see it.

A script of its own (`python -I -S`), on the PATH of tests that run apart from the work. It asks the sandbox's first process to
start the command where the workspace is, and passes on: standard streams, the descriptors that are named (under the same
numbers), the environment without pytest's, signals, and the exit code (it dies of the same signal as the command).

Pipes and sockets are passed as they are. Everything else is copied through a pipe: a descriptor of a file or folder would
lead the command into the tests' own tree.
"""

import fcntl
import json
import os
import signal
import socket
import stat
import struct
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

SOCKET = "/run/braid/socket"
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
USAGE = "usage: work [--fd N]... COMMAND..."
CHUNK = 65536


def main() -> NoReturn:
    """Start the command, wait, and end as it did."""
    numbers, command = arguments(sys.argv[1:])
    pumps: list[threading.Thread] = []
    passed = {number: passable(number, pumps) for number in numbers}
    with socket.socket(socket.AF_UNIX) as launcher:
        launcher.connect(SOCKET)
        for each in FORWARDED:
            signal.signal(each, lambda got, _frame: forward(launcher, got, _frame))
        ask(launcher, command, passed)
        for number, place in passed.items():
            if place != number:
                os.close(place)
        answer = json.loads(launcher.makefile("rb").readline() or b'{"trouble": "the sandbox is gone"}')
    for pump in pumps:
        pump.join()
    if "trouble" in answer:
        fail(f"work: {answer['trouble']}", 125)
    end_like(answer["status"])


def arguments(given: list[str]) -> tuple[list[int], list[str]]:
    """The descriptors to pass on, and the command."""
    numbers = [0, 1, 2]
    while given[:1] == ["--fd"]:
        if len(given) < 2 or not given[1].isdigit():
            fail(USAGE, 2)
        numbers.append(int(given[1]))
        given = given[2:]
    if not given or (given[0].startswith("-") and given[0] != "--"):
        fail(USAGE, 2)
    return list(dict.fromkeys(numbers)), given[1:] if given[0] == "--" else given


def passable(number: int, pumps: list[threading.Thread]) -> int:
    """The descriptor itself when it is a pipe or a socket, else the end of a pipe that is copied from or to it."""
    try:
        mode = os.fstat(number).st_mode
        writes = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        if number > 2:
            fail(f"work: descriptor {number} is not open", 2)
        return os.open("/dev/null", os.O_RDWR)
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or is_null(number, mode):
        return number
    reading, writing = os.pipe()
    if number and writes:
        pumps.append(threading.Thread(target=pump, args=(reading, number, reading)))
        pumps[-1].start()
        return writing
    threading.Thread(target=pump, args=(number, writing, writing), daemon=True).start()
    return reading


def is_null(number: int, mode: int) -> bool:
    """Whether it is /dev/null, which leads nowhere."""
    return stat.S_ISCHR(mode) and os.fstat(number).st_rdev == os.makedev(1, 3)


def pump(source: int, target: int, ours: int) -> None:
    """Copy until the end, or until the other side is gone; then close the end of the pipe that is ours."""
    with suppress(OSError):
        while chunk := os.read(source, CHUNK):
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
    os.close(ours)


def ask(launcher: socket.socket, command: list[str], passed: dict[int, int]) -> None:
    """Send the request, with the descriptors."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_CURRENT")}
    env["PATH"] = ":".join(part for part in env.get("PATH", "").split(":") if part != os.path.dirname(SOCKET))  # noqa: PTH120
    request = json.dumps({"command": command, "env": env, "numbers": list(passed)}).encode()
    socket.send_fds(launcher, [struct.pack("I", len(request))], list(passed.values()))
    launcher.sendall(request)


def forward(launcher: socket.socket, number: int, _frame: FrameType | None) -> None:
    """Send a signal on; a launcher that is gone has ended the command already."""
    with suppress(OSError):
        launcher.send(bytes([number]))


def end_like(status: int) -> NoReturn:
    """End as the command did: with its exit code, or by its signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def fail(message: str, code: int) -> NoReturn:
    """Say why there is no result of the command."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
