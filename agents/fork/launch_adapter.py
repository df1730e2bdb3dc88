"""Commands in namespaces of their own: no network but loopback, no other processes in sight, a view of their own, no capabilities.

A holder lives as long as a sandbox. It holds the user namespace, the machine's programs and the sandbox's own file systems, and
starts commands. When root starts it, it becomes another user of the machine, who runs no program and owns no file: root
inside is never the machine's root.

A command's first process is the child of a namespace's init; when it ends, or its runner or holder dies in whatever way, the
kernel kills everything in the namespace: daemons, double forks, new sessions.

Tests that run apart (`harness.apart`): the command is the reporter, whose view has the tests and no workspace; it has a user of
its own where root started the holder. Its program `work` asks init, over a socket that only the reporter's view has, to start a
command where the workspace is: in PID, mount and IPC namespaces below init's own, with a /proc that shows only itself, and no
descriptor but those that were passed. Commands of `work` cannot name the reporter or init; they share the reporter's loopback,
so that tests can talk to a server.
"""

import json
import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.fork.filter_adapter import filter_calls
from agents.fork.kernel_adapter import (
    NEW_IPC,
    NEW_NET,
    NEW_NS,
    NEW_PID,
    NEW_USER,
    NEW_UTS,
    PR_SET_DUMPABLE,
    become,
    call,
    change_root,
    die_with_parent,
    drop_capabilities,
    execute,
    leave_abstract_sockets,
    limit,
    loopback_up,
    lower,
    mount,
    reap,
)
from agents.fork.request_adapter import accepted, forward_signals, handed, place, receive, send, serve
from agents.fork.views_adapter import (
    HARNESS,
    HELPER,
    PRIVATE,
    TESTS,
    VIEW,
    WORKSPACE,
    bring_folder,
    bring_harness,
    bring_helper,
    build_view,
    gather,
    seal,
    show_processes,
)

REPORTER, WORK = f"{VIEW}/reporter", f"{VIEW}/work"
"""The paths of the two views of tests that run apart, as init sees them."""

INSIDE = "/workspace"
REPORTER_USER = 1
"""Inside, beside root."""

ALL = NEW_NS | NEW_PID | NEW_NET | NEW_IPC | NEW_UTS


def hold(control: socket.socket) -> int:
    """Set a sandbox up, send its folders' descriptors, and start commands until the runner is gone."""
    os.umask(0o022)  # other users must be able to enter these folders, whatever the runner's umask
    try:
        spec = json.loads(receive(control)[0])
        enter(spec)
        folders = [os.open(place, os.O_RDONLY | os.O_DIRECTORY) for place in (WORKSPACE, HARNESS)]
    except OSError as error:
        send(control, str(error).encode())
        return 125
    send(control, b"ready", folders)
    for folder in folders:
        os.close(folder)
    return serve(control, handed, ALL, lambda body, passed: run_command(spec, json.loads(body), passed))


def enter(spec: dict[str, Any]) -> None:
    """Enter a user namespace in which only the parts of views are visible."""
    if spec["uids"]:
        call("unshare", NEW_NS)
        gather(spec, spec["uids"][0])
        enter_as(spec["uids"])
    else:
        user, group = os.getuid(), os.getgid()
        call("unshare", NEW_USER | NEW_NS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        gather(spec, 0)
    # Set after the new credentials, which would clear it.
    die_with_parent(signal.SIGKILL, spec["parent"])
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)  # no command of the same user looks into this process or its forks
    with suppress(OSError):  # nested user namespaces: less of the kernel in reach, and not needed by what runs here
        Path("/proc/sys/user/max_user_namespaces").write_text("0")


def enter_as(uids: list[int]) -> None:
    """Enter a user namespace that maps these users of the machine; a process outside must write the map."""
    os.setgroups([])
    holder, (waiting, entered) = os.getpid(), os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(entered)
        try:
            if os.read(waiting, 1):
                mapped = "".join(f"{inside} {outside} 1\n" for inside, outside in enumerate(uids))
                for kind in ("uid", "gid"):
                    Path(f"/proc/{holder}/{kind}_map").write_text(mapped)
                os._exit(0)
        finally:
            os._exit(1)
    os.close(waiting)
    call("unshare", NEW_USER | NEW_NS)
    os.write(entered, b"1")
    os.close(entered)
    if os.waitpid(mapper, 0)[1]:
        raise OSError(f"users {uids[0]} and {uids[1]} cannot be mapped: choose others with fork.first_uid")
    become(0)


# -- a command -------------------------------------------------------------------------------------------------------------


def run_command(spec: dict[str, Any], request: dict[str, Any], passed: list[int]) -> int:
    """As a namespace's first process: build the view, start the command, reap until it is over; returns its wait status."""
    harness = request["harness"]
    apart = harness is not None and harness["apart"]
    listener = None
    if apart:
        listener = build_apart(spec, harness)
    else:
        build_together(spec, harness)
    socket.sethostname("sandbox")
    with suppress(OSError):  # without loopback there is no network at all
        loopback_up()
    first = os.fork()
    if first == 0:
        try:
            if apart:
                call("unshare", NEW_NS)
                change_root(REPORTER)
            place(passed, (0, 1, 2))
            close_in(request)
            if apart and spec["uids"]:
                become(REPORTER_USER)
            execute(request["command"], TESTS if apart else INSIDE, request["env"])
        finally:
            os._exit(125)
    for descriptor in passed:
        os.close(descriptor)
    if listener is not None:
        return serve(
            listener, accepted, NEW_NS | NEW_PID | NEW_IPC, lambda body, given: run_work(request, body, given), first
        )
    drop_capabilities()
    return reap(first)


def close_in(request: dict[str, Any]) -> None:
    """In the command's process: its limits, no capabilities, no calls that reach the machine. Init itself is not limited, so that
    it always works."""
    limit(request)
    lower(resource.RLIMIT_NPROC, request["processes"])
    drop_capabilities()
    filter_calls()


def build_together(spec: dict[str, Any], harness: dict[str, Any] | None) -> None:
    """One view: the workspace, with the tests and a place for reports if there are any."""
    build_view(VIEW, spec["readonly"])
    if harness is not None:
        bring_harness(VIEW)
    bring_folder(WORKSPACE, VIEW, INSIDE, writable=True)
    show_processes(VIEW)
    change_root(VIEW)
    seal("/")


def build_apart(spec: dict[str, Any], harness: dict[str, Any]) -> socket.socket:
    """Two views, and the socket that the reporter's has."""
    mount("tmpfs", VIEW, "tmpfs", PRIVATE, "size=1m,mode=755")
    for view in (REPORTER, WORK):
        Path(view).mkdir()
        build_view(view, spec["readonly"])
    bring_harness(REPORTER)
    bring_helper(harness, REPORTER)
    show_processes(REPORTER)
    bring_folder(WORKSPACE, WORK, INSIDE, writable=True)
    listener = socket.socket(socket.AF_UNIX)
    name = f"{REPORTER}{HELPER}/socket"
    listener.bind(name)
    listener.listen(64)
    os.chmod(name, 0o666)  # noqa: PTH101, S103 - the reporter is another user; no one but it has this folder
    seal(REPORTER)
    seal(WORK)
    return listener


def run_work(request: dict[str, Any], body: bytes, passed: list[int]) -> int:
    """As the first process of the PID namespace of a command of `work`: enter its view, start it, reap until it is over."""
    n_numbers, n_arguments, *given = body.split(b"\0")
    numbers = [int(each) for each in given[: int(n_numbers)]]
    command, variables = given[len(numbers) :][: int(n_arguments)], given[len(numbers) :][int(n_arguments) :]
    env = dict(each.split(b"=", 1) for each in variables)
    if len(passed) != len(numbers):
        raise ValueError("too many descriptors")
    show_processes(WORK)
    change_root(WORK)
    drop_capabilities()
    leave_abstract_sockets()
    first = os.fork()
    if first == 0:
        try:
            place(passed, numbers)
            close_in(request)
            execute([os.fsdecode(each) for each in command], INSIDE, env)
        finally:
            os._exit(125)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number, inheritable=False)
    for descriptor in passed:
        os.close(descriptor)
    forward_signals(first)
    return reap(first)
