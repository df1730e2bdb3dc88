"""`work [--fd N]... COMMAND...`: run a command on the workspace, from tests that cannot see it.

A standalone script (`python -I -S`), on the PATH of tests that run apart from the work. It asks the sandbox's first
process to start the command where the workspace is, and passes on: standard streams, the descriptors that are named
(under the same numbers), the environment without the name of the current test, signals, and the exit code (it dies of
the same signal as the command). 125: the command could not be started.

Pipes and sockets are passed directly. Everything else is copied through a pipe: a descriptor of a file or folder would
lead the command into the tests' own tree.
"""

import fcntl
import os
import signal
import socket
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # every import costs time in each command that tests start
    from threading import Thread
    from typing import NoReturn

SOCKET = "/run/braid/socket"
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
USAGE = "usage: work [--fd N]... COMMAND..."
CHUNK = 65536
FAILED = 125


def main() -> "NoReturn":
    """Start the command, wait, and end as it did."""
    numbers, command = arguments(sys.argv[1:])
    pumps: list[Thread] = []
    passed = [passable(number, pumps) for number in numbers]
    with socket.socket(socket.AF_UNIX) as launcher:
        launcher.connect(SOCKET)
        for each in FORWARDED:
            signal.signal(each, lambda got, _frame: forward(launcher, got))
        request = encoded(numbers, command)
        socket.send_fds(launcher, [struct.pack("I", len(request))], passed)
        launcher.sendall(request)
        for number, place in zip(numbers, passed, strict=True):
            if place != number:
                os.close(place)
        reply = b""
        while chunk := launcher.recv(CHUNK):
            reply += chunk
    for pump in pumps:
        pump.join()
    end_like(reply[4:].decode() or "the sandbox is gone")


def arguments(given: list[str]) -> tuple[list[int], list[str]]:
    """The descriptors to pass on, and the command."""
    numbers = [0, 1, 2]
    while given[:1] == ["--fd"]:
        if len(given) < 2 or not given[1].isdigit():
            fail(USAGE, 2)
        numbers.append(int(given[1]))
        given = given[2:]
    if given[:1] == ["--"]:
        given = given[1:]
    elif given and given[0].startswith("-"):
        fail(USAGE, 2)
    if not given:
        fail(USAGE, 2)
    return list(dict.fromkeys(numbers)), given


def encoded(numbers: list[int], command: list[str]) -> bytes:
    """The request, separated by NUL: the numbers of descriptors and arguments, then these, then the environment."""
    env = {name: value for name, value in os.environb.items() if name != b"PYTEST_CURRENT_TEST"}
    helper = os.path.dirname(SOCKET).encode()  # noqa: PTH120 - pathlib costs time
    env[b"PATH"] = b":".join(part for part in env.get(b"PATH", b"").split(b":") if part != helper)
    counts = (str(len(each)).encode() for each in (numbers, command))
    given = (str(number).encode() for number in numbers), map(os.fsencode, command)
    return b"\0".join((*counts, *given[0], *given[1], *(name + b"=" + value for name, value in env.items())))


def passable(number: int, pumps: "list[Thread]") -> int:
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
    from threading import Thread

    reading, writing = os.pipe()
    if number and writes:
        pumps.append(Thread(target=pump, args=(reading, number, reading)))
        pumps[-1].start()
        return writing
    Thread(target=pump, args=(number, writing, writing), daemon=True).start()
    return reading


def is_null(number: int, mode: int) -> bool:
    """Whether it is /dev/null, which leads nowhere."""
    return stat.S_ISCHR(mode) and os.fstat(number).st_rdev == os.makedev(1, 3)


def pump(source: int, target: int, ours: int) -> None:
    """Copy until the end, or until the other side disconnects; then close our end of the pipe."""
    try:
        while chunk := os.read(source, CHUNK):
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
    except OSError:
        pass
    os.close(ours)


def forward(launcher: socket.socket, number: int) -> None:
    """Send a signal on; a launcher that is gone has ended the command already."""
    try:  # noqa: SIM105 - contextlib costs time
        launcher.send(bytes([number]))
    except OSError:
        pass


def end_like(reply: str) -> "NoReturn":
    """End as the command did: with its exit code, or by its signal."""
    if not reply.isdigit():
        fail(f"work: {reply}", FAILED)
    code = os.waitstatus_to_exitcode(int(reply))
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def fail(message: str, code: int) -> "NoReturn":
    """Print why the command has no result, and exit."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
