"""A seccomp filter for commands in namespaces: it blocks system calls that no namespace confines.

Only sockets of UNIX, IP and netlink are allowed: others (AF_VSOCK, which connects to the host of a virtual machine)
ignore network namespaces. Key rings, the kernel's log, BPF and performance events belong to the machine. io_uring makes
calls that no filter sees. Setting the limit of core dumps has no effect: with the value 0 they would go to the
machine's handler.
"""

import ctypes
import errno
import os
import resource
import socket
import struct
from typing import NamedTuple

from agents.fork.kernel_adapter import call

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in seccomp_data."""

X32 = 0x40000000
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)

Code = list[tuple[int, int, int, int]]


class Calls(NamedTuple):
    """An architecture and its numbers of system calls."""

    architecture: int
    socket: int
    setrlimit: int
    prlimit64: int
    refused: tuple[int, ...]
    """add_key, request_key, keyctl, syslog, bpf, perf_event_open."""
    absent: tuple[int, ...] = (425,)
    """io_uring_setup, and calls whose arguments a filter cannot see."""


X86_64 = Calls(0xC000003E, 41, 160, 302, (248, 249, 250, 103, 321, 298))
I386 = Calls(0x40000003, 359, 75, 340, (286, 287, 288, 103, 357, 336), (425, 102))
ARM64 = Calls(0xC00000B7, 198, 164, 261, (217, 218, 219, 116, 280, 241))
RISCV64 = ARM64._replace(architecture=0xC00000F3)
KNOWN = {"x86_64": (X86_64, I386), "aarch64": (ARM64,), "riscv64": (RISCV64,)}


def filter_calls() -> None:
    """Install the filter for this process and its children; it needs `no_new_privs`. Raises OSError."""
    known = KNOWN.get(os.uname().machine)
    if known is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls is known for {os.uname().machine}")
    code = [instruction for calls in known for instruction in section(calls)] + [(RETURN, 0, 0, REFUSE | errno.ENOSYS)]
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    held = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(held))
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)


def section(calls: Calls) -> Code:
    """The filter for one architecture; calls of others go on behind it."""
    body: Code = [(LOAD, 0, 0, NUMBER)]
    if calls is X86_64:
        body += [(JUMP_AT_LEAST, 0, 1, X32), (RETURN, 0, 0, REFUSE | errno.ENOSYS)]
    body += when(calls.socket, [(LOAD, 0, 0, ARGUMENTS), *among(FAMILIES, errno.EAFNOSUPPORT)])
    core = resource.RLIMIT_CORE
    ignored = (RETURN, 0, 0, REFUSE | 0)
    body += when(calls.setrlimit, [(LOAD, 0, 0, ARGUMENTS), (JUMP_EQUAL, 0, 1, core), ignored, (RETURN, 0, 0, ALLOW)])
    asked = [(LOAD, 0, 0, ARGUMENTS + 8), (JUMP_EQUAL, 0, 4, core)]
    without_new = [
        (LOAD, 0, 0, ARGUMENTS + 16),
        (JUMP_EQUAL, 0, 3, 0),
        (LOAD, 0, 0, ARGUMENTS + 20),
        (JUMP_EQUAL, 0, 1, 0),
    ]
    body += when(calls.prlimit64, [*asked, *without_new, (RETURN, 0, 0, ALLOW), ignored])
    for number in calls.refused:
        body += when(number, [(RETURN, 0, 0, REFUSE | errno.EPERM)])
    for number in calls.absent:
        body += when(number, [(RETURN, 0, 0, REFUSE | errno.ENOSYS)])
    body.append((RETURN, 0, 0, ALLOW))
    return [(LOAD, 0, 0, ARCHITECTURE), (JUMP_EQUAL, 0, len(body), calls.architecture), *body]


def when(number: int, then: Code) -> Code:
    """Instructions for one call; they return."""
    return [(JUMP_EQUAL, 0, len(then), number), *then]


def among(values: tuple[int, ...], refusal: int) -> Code:
    """Allow when the loaded value is one of these."""
    checks: Code = [(JUMP_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [*checks, (RETURN, 0, 0, REFUSE | refusal), (RETURN, 0, 0, ALLOW)]
