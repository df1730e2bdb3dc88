"""Requests to run a command, over sockets that pass descriptors: from the runner to a holder, and from `work` to init.

A message is its length (4 bytes, with the descriptors) and its bytes. Each request has a connection and a process of its own: the
process starts the command in new namespaces, sends signals on, replies with the command's wait status or the reason why there is
none, and kills the command when the other side is gone or has shut its side down.
"""

import fcntl
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from agents.fork.kernel_adapter import PR_SET_PDEATHSIG, call, die_with_parent

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
MAX_MESSAGE = 8 * 2**20
MAX_PASSED = 64
GRACE_S = 2.0
"""A command that was sent SIGTERM has this long before it is killed."""

Run = Callable[[bytes, list[int]], int]
"""Runs a request's command as the first process of its PID namespace, with the descriptors; returns its wait status."""


def send(connection: socket.socket, body: bytes, passed: Sequence[int] = ()) -> None:
    """Send a message with descriptors."""
    socket.send_fds(connection, [struct.pack("I", len(body))], passed)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """A message and its descriptors. Raises OSError or ValueError."""
    head, passed, _, _ = socket.recv_fds(connection, 4, MAX_PASSED)
    for descriptor in passed:
        os.set_inheritable(descriptor, False)
    length = struct.unpack("I", head)[0] if len(head) == 4 else 0
    if not 0 < length <= MAX_MESSAGE:
        raise ValueError(f"a message of 1 to {MAX_MESSAGE} bytes was expected")
    body = bytearray()
    while len(body) < length and (chunk := connection.recv(length - len(body))):
        body += chunk
    return bytes(body), passed


def accepted(listener: socket.socket) -> socket.socket:
    """The next connection to a socket with a name."""
    return listener.accept()[0]


def handed(control: socket.socket) -> socket.socket | None:
    """The next connection that was passed over another one; None at its end."""
    said, passed, _, _ = socket.recv_fds(control, 1, 1)
    return socket.socket(fileno=passed[0]) if said else None


def serve(
    source: socket.socket, take: Callable[[socket.socket], socket.socket | None], flags: int, run: Run, first: int = 0
) -> int:
    """Start a process for each connection; return how `first` ended, or 0 when no more connections can arrive."""
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    this = os.getpid()
    while True:
        pid, status = 0, 0
        with suppress(ChildProcessError):
            pid, status = os.waitpid(-1, os.WNOHANG)
        if pid and pid == first:
            return status
        if pid:
            continue
        if waking in select.select([source.fileno(), waking], [], [])[0]:
            os.read(waking, 512)
            continue
        connection = take(source)
        if connection is None:
            return 0
        with connection, suppress(OSError):  # no more processes: the other side sees the connection close
            if os.fork() == 0:
                try:
                    source.close()
                    die_with_parent(signal.SIGKILL, this)
                    answer(connection, flags, run)
                finally:
                    os._exit(1)


def answer(connection: socket.socket, flags: int, run: Run) -> NoReturn:
    """Run the command of one request in new namespaces, and send how it ended."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until there is a process to send them to
    try:
        request, passed = receive(connection)
        call("unshare", flags)
        telling, told = os.pipe()
        alive, held = os.pipe()
        inner = os.fork()
        if inner == 0:
            connection.close()
            os.close(held)
            tell(told, alive, lambda: run(request, passed))
        for descriptor in (told, alive, *passed):
            os.close(descriptor)
        watch(connection, inner)
        reply = os.read(telling, 4096) or b"%d" % signal.SIGKILL
    except (OSError, ValueError) as error:
        reply = str(error).encode()
    with suppress(OSError):
        send(connection, reply)
    os._exit(0)


def tell(told: int, alive: int, run: Callable[[], int]) -> NoReturn:
    """Run, write the result for the process that waits, and end; everything in the namespace ends with this."""
    said = "the first process of a command failed"
    try:
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if select.select([alive], [], [], 0)[0]:  # the parent had died before its death became a signal
            os._exit(1)
        said = str(run())
    except (OSError, ValueError) as error:
        said = str(error)
    finally:
        os.write(told, said.encode())
        os._exit(0)


def watch(connection: socket.socket, inner: int) -> None:
    """Wait for a namespace to end; forward signals, and kill it when the other side disconnects."""
    ended, deadline = os.pidfd_open(inner), None
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = select.select([ended, connection.fileno()], [], [], left)[0]
        if ended in ready:
            break
        numbers = connection.recv(64) if ready else b""
        if not numbers:
            os.kill(inner, signal.SIGKILL)
            break
        for number in numbers:
            if number == signal.SIGTERM and deadline is None:
                deadline = time.monotonic() + GRACE_S
            os.kill(inner, number)
    os.waitpid(inner, 0)


def forward_signals(pid: int) -> None:
    """Send signals that this process gets, or got while they were blocked, to another one."""
    for number in FORWARDED:
        signal.signal(number, lambda got, _frame: os.kill(pid, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def place(passed: Sequence[int], numbers: Sequence[int]) -> None:
    """In the command's process: put the descriptors at the numbers it expects, close all others, and unblock signals."""
    beyond = max(*numbers, *passed) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in passed]
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
    for number in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        if number not in numbers:
            with suppress(OSError):  # the listing's own
                os.close(number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
