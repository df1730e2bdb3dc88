"""Commands in namespaces of their own: no network but loopback, no other processes in sight, a view of their own, no capabilities.

The command's first process is the child of a namespace's init; when it ends, or its keeper dies in whatever way, the kernel
kills everything in the namespace: daemons, double forks, new sessions.

Tests that run apart (`harness.apart`): the command is the reporter, whose view has the tests and no workspace. Its program
`work` asks init, over a socket that only the reporter's view has, to start a command where the workspace is: in PID, mount and
IPC namespaces below init's own, with a /proc that shows only itself, and no descriptor but those that were passed. Commands of
`work` cannot name the reporter or init; they share the reporter's loopback, so that tests can talk to a server.
"""

import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from agents.fork.kernel_adapter import (
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    NEW_IPC,
    NEW_NET,
    NEW_NS,
    NEW_PID,
    NEW_USER,
    NEW_UTS,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    call,
    change_root,
    die_with_parent,
    drop_capabilities,
    execute,
    exit_code,
    leave_abstract_sockets,
    leave_keyrings,
    limit,
    loopback_up,
    lower,
    mount,
    wait_for,
)
from agents.fork.views_adapter import (
    HELPER,
    TESTS,
    bring_folder,
    bring_harness,
    bring_helper,
    build_view,
    seal,
    show_processes,
)

REPORTER, WORK = "/reporter", "/work"
"""The two views of tests that run apart, as init sees them."""

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
MAX_REQUEST = 8 * 2**20
MAX_PASSED = 64
GRACE_S = 2.0
"""A command whose `work` got SIGTERM has this long before it is killed."""


def run_closed(spec: dict[str, Any]) -> int:
    """Run the command in namespaces of its own; returns its exit code."""
    limit(spec)
    leave_keyrings()
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_USER | NEW_NS | NEW_PID | NEW_NET | NEW_IPC | NEW_UTS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    # After the new credentials, which would clear it: this process dies with the runner, and the namespace with this process.
    die_with_parent(signal.SIGKILL, spec["parent"])
    # Counted in the new namespace only from here on; set before, it would count all processes of the user.
    lower(resource.RLIMIT_NPROC, spec["processes"])
    alive, held = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(held)
        run_init(spec, alive)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(init, signal.SIGKILL))
    return wait_for(init)


def run_init(spec: dict[str, Any], alive: int) -> NoReturn:
    """The namespace's first process: set the place up, start the command, reap until it is over."""
    try:
        harness = spec["harness"]
        apart = harness is not None and harness["apart"]
        listener = None
        if apart:
            listener = build_apart(spec)
        else:
            build_together(spec)
        with suppress(OSError):  # without loopback there is no network at all
            loopback_up()
        if not apart:
            drop_capabilities()
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if select.select([alive], [], [], 0)[0]:  # the keeper had died before its death became a signal
            os._exit(125)
        first = os.fork()
        if first == 0:
            if apart:
                call("unshare", NEW_NS)
                change_root(REPORTER)
                drop_capabilities()
            execute(spec["command"], TESTS if apart else spec["root"])
    except OSError as error:
        os.write(spec["status_fd"], str(error).encode())
        os._exit(125)
    os.close(spec["status_fd"])
    serve(spec, first, listener)


def build_together(spec: dict[str, Any]) -> None:
    """One view: the workspace, and the tests and a place for reports where there are some."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = spec["scratch"]
    build_view(root, spec["readonly"])
    if spec["harness"] is not None:
        bring_harness(spec["harness"], root)
    bring_folder(spec["workspace"], root, spec["root"], writable=True)
    show_processes(root)
    change_root(root)
    seal("/")


def build_apart(spec: dict[str, Any]) -> socket.socket:
    """Two views, and the socket that the reporter's has."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = spec["scratch"]
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for view in (REPORTER, WORK):
        Path(root + view).mkdir()
    build_view(root + REPORTER, spec["readonly"])
    bring_harness(spec["harness"], root + REPORTER)
    bring_helper(spec["harness"], root + REPORTER)
    show_processes(root + REPORTER)
    build_view(root + WORK, spec["readonly"])
    bring_folder(spec["workspace"], root + WORK, spec["root"], writable=True)
    change_root(root)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{REPORTER}{HELPER}/socket")
    listener.listen(64)
    seal(REPORTER)
    seal(WORK)
    return listener


# -- requests of `work` ----------------------------------------------------------------------------------------------------


def serve(spec: dict[str, Any], first: int, listener: socket.socket | None) -> NoReturn:
    """Reap until the command is over; the kernel kills what is left then. Each request gets a process of its own."""
    if listener is None:
        os._exit(wait_for(first))
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        pid, status = 0, 0
        with suppress(ChildProcessError):
            pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == first:
            os._exit(exit_code(status))
        if pid:
            continue
        if waking in select.select([listener.fileno(), waking], [], [])[0]:
            os.read(waking, 512)
            continue
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(spec, connection)
        connection.close()


def answer(spec: dict[str, Any], connection: socket.socket) -> NoReturn:
    """Run the command of one request, and send how it ended."""
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until there is a process to send them to
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        request, passed = receive(connection)
        call("unshare", NEW_NS | NEW_PID | NEW_IPC)
        telling, told = os.pipe()
        inner = os.fork()
        if inner == 0:
            connection.close()
            run_work(request, passed, spec["root"], told)
        os.close(told)
        for descriptor in passed:
            os.close(descriptor)
        watch(connection, inner)
        reply = json.loads(os.read(telling, 4096) or json.dumps({"status": int(signal.SIGKILL)}))
    except (OSError, ValueError) as error:
        reply = {"trouble": str(error)}
    with suppress(OSError):
        connection.sendall(json.dumps(reply).encode() + b"\n")
    os._exit(0)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request and the descriptors that came with it."""
    head, passed, _, _ = socket.recv_fds(connection, 4, MAX_PASSED)
    length = struct.unpack("I", head)[0] if len(head) == 4 else MAX_REQUEST + 1
    if length > MAX_REQUEST:
        raise ValueError("the request is too large")
    with connection.makefile("rb", buffering=0) as stream:
        body = b""
        while len(body) < length and (chunk := stream.read(length - len(body))):
            body += chunk
    request: dict[str, Any] = json.loads(body)
    if len(request["numbers"]) != len(passed):
        raise ValueError(f"more than {MAX_PASSED} descriptors")
    return request, passed


def watch(connection: socket.socket, inner: int) -> None:
    """Wait for the command's namespace to end; signals are sent on, and the namespace ends with its `work`."""
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


def run_work(request: dict[str, Any], passed: list[int], folder: str, told: int) -> NoReturn:
    """The first process of a command's namespace: enter the view, start the command, reap until it is over."""
    try:
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
        show_processes(WORK)
        change_root(WORK)
        drop_capabilities()
        leave_keyrings()
        leave_abstract_sockets()
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number, inheritable=False)
        first = os.fork()
        if first == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
            place(passed, request["numbers"])
            execute(request["command"], folder, request["env"])
        for descriptor in passed:
            os.close(descriptor)
        for number in FORWARDED:
            signal.signal(number, lambda got, _frame: os.kill(first, got))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        while True:
            pid, status = os.wait()
            if pid == first:
                break
        said: dict[str, Any] = {"status": status}
    except (OSError, ValueError) as error:
        said = {"trouble": str(error)}
    os.write(told, json.dumps(said).encode())
    os._exit(0)


def place(passed: list[int], numbers: list[int]) -> None:
    """Put the descriptors where the command expects them, and close all others."""
    beyond = max(*numbers, *passed) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in passed]
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
    for number in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        if number not in numbers:
            with suppress(OSError):  # the listing's own
                os.close(number)
