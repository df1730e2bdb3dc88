"""Calls of the Linux kernel that confinement is made of: namespaces, mounts, limits, capabilities, process ends.

Imported by scripts that run before any view of the product exists, so it imports only the standard library.
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_OPENAT2, SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_RESTRICT = 437, 442, 444, 446
RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH = 1, 2, 8
LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1
AT_RECURSIVE, ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 0x8000, 1, 2, 4
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
LAST_CAPABILITY = 63

NO_CORE = 1
"""Bytes of a core dump: too few for a file, and the one value with which none is piped to the machine's handler (core(5))."""

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """A function of the C library; raises OSError."""
    result: int = getattr(libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


# -- mounts and network ----------------------------------------------------------------------------------------------------


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if each is None else each.encode() for each in (source, target, kind, options)]
    try:
        call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    except OSError as error:
        raise OSError(error.errno, f"mount {target}: {os.strerror(error.errno or 0)}") from None


def set_attributes(path: str, attributes: int, *, recursive: bool) -> None:
    """mount_setattr(2)."""
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)
    call("syscall", SYS_MOUNT_SETATTR, -100, path.encode(), AT_RECURSIVE if recursive else 0, wanted, len(wanted))


def change_root(root: str) -> None:
    """Make a mount the root of this mount namespace, and detach everything else."""
    os.chdir(root)
    call("pivot_root", b".", b".")  # the old root is now mounted over the new one
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def loopback_up() -> None:
    """Enable 127.0.0.1 inside; no other address works."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", IFF_UP, b""))


def open_beneath(folder: int, path: str, flags: int, mode: int = 0) -> int:
    """openat2(2): open a path below a folder; raises OSError (EXDEV) when a link or `..` leads out of it."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)
    return call("syscall", SYS_OPENAT2, folder, os.fsencode(path), how, len(how))


# -- powers ----------------------------------------------------------------------------------------------------------------


def drop_capabilities() -> None:
    """No capability survives the next exec, and none can be gained."""
    for capability in range(LAST_CAPABILITY + 1):
        with suppress(OSError):  # beyond the kernel's last one
            call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def become(uid: int) -> None:
    """Run as another user and group; this ends all capabilities when it is not root of the namespace."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def leave_abstract_sockets() -> None:
    """Abstract sockets of other processes in this network namespace are out of reach if the kernel's Landlock covers
    them (Linux 6.12).
    """
    wanted = struct.pack("QQQ", 0, 0, LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET)
    with suppress(OSError):
        rules = call("syscall", SYS_LANDLOCK_CREATE, wanted, len(wanted), 0)
        call("syscall", SYS_LANDLOCK_RESTRICT, rules, 0)
        os.close(rules)


def limit(spec: Mapping[str, Any]) -> None:
    """Limits of every process."""
    for kind, value in (
        (resource.RLIMIT_CPU, spec["cpu_s"]),
        (resource.RLIMIT_DATA, spec["memory_mb"] * 2**20),
        (resource.RLIMIT_FSIZE, spec["file_mb"] * 2**20),
        (resource.RLIMIT_CORE, NO_CORE),
    ):
        lower(kind, value)


def lower(kind: int, value: int) -> None:
    """Set a limit, unless it is lower already."""
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


# -- processes -------------------------------------------------------------------------------------------------------------


def die_with_parent(number: signal.Signals, parent: int | None) -> None:
    """Get a signal when the runner dies, even by SIGKILL; at once when it is dead already."""
    call("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(125)


def execute(command: Sequence[str], folder: str, env: Mapping[str, str] | Mapping[bytes, bytes]) -> NoReturn:
    """Become the command; a command that cannot be started exits with 127, as in a shell."""
    os.setsid()
    try:
        os.chdir(folder)
        os.execvpe(command[0], list(command), env)  # noqa: S606 - a list, no shell
    except (OSError, ValueError) as error:
        os.write(2, f"{command[0]}: {getattr(error, 'strerror', None) or error}\n".encode())
        os._exit(127)


def reap(pid: int) -> int:
    """Wait for a process, other children reaped on the way; returns its wait status."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return status


def exit_code(status: int) -> int:
    """The exit code; 128 + the signal's number if a signal killed it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
