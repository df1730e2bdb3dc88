"""One command, confined: started as a script of its own (`python -I -S confine_adapter.py SPEC`), imports nothing of ours.

With namespaces (Linux, unprivileged user namespaces or root): no network but loopback, no other processes in sight, a root
of its own in which only the system's programs (read-only), a private /tmp and the workspace exist, no capabilities. The
command's first process is the child of a namespace's init; when it ends, or its keeper dies in whatever way, the kernel
kills everything in the namespace: daemons, double forks, new sessions.

Without them (`"isolation": "processes"`, only when somebody asks for it): limits, no capabilities, and a keeper that adopts
orphans (a child subreaper) and kills all of its descendants at the end. The network and this user's files are within reach.

Trouble before the command starts is written to the status descriptor; an exit code is always the command's own. Where the
machine is itself a sandbox (e2b), the same keeper runs there: no parent to die with, standard error as the descriptor.
"""

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_MOUNT_SETATTR = 442
AT_RECURSIVE, ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 0x8000, 1, 2, 4
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
LAST_CAPABILITY = 63

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl",
)
"""What programs need of the machine. Nothing of anybody's home, of /etc's secrets, or of other people's /tmp."""

DEVICES = ("null", "zero", "full", "random", "urandom")

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """A function of the C library; raises OSError."""
    result: int = getattr(libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


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


# -- namespaces ------------------------------------------------------------------------------------------------------------


def in_namespaces(spec: dict[str, Any]) -> int:
    """Run the command in namespaces of its own."""
    limit(spec)
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
        build_root(spec)
        with suppress(OSError):  # without loopback there is simply no network at all
            loopback_up()
        drop_capabilities()
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if select.select([alive], [], [], 0)[0]:  # the keeper had died before its death became a signal
            os._exit(125)
        main_process = os.fork()
        if main_process == 0:
            execute(spec)
    except OSError as error:
        os.write(spec["status_fd"], str(error).encode())
        os._exit(125)
    while True:
        pid, status = os.wait()
        if pid == main_process:
            os._exit(exit_code(status))  # the kernel kills whatever is left


def build_root(spec: dict[str, Any]) -> None:
    """A root that holds the system's programs, a private /tmp and the workspace; nothing else of the machine."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = spec["scratch"]
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=755")
    for folder in ("dev", "proc", "tmp", "dev/shm", "etc", "old"):
        Path(root, folder).mkdir(parents=True, exist_ok=True)
    mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=1777")  # noqa: S108 - private
    for path in (*SYSTEM, *spec["readonly"]):  # after that: the Python that runs us may lie in the machine's /tmp
        bring(path, root)
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")  # noqa: S108 - private
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV)
    for name in DEVICES:
        Path(root, "dev", name).touch()
        mount(f"/dev/{name}", f"{root}/dev/{name}", None, MS_BIND)
    Path(root, "dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        Path(root, "dev", name).symlink_to(f"/proc/self/fd/{number}")
    Path(root, "etc/passwd").write_text("root:x:0:0:root:/tmp:/bin/sh\n")
    Path(root, "etc/group").write_text("root:x:0:\n")
    Path(root, "etc/hosts").write_text("127.0.0.1 localhost\n")
    inside = root + spec["root"]
    Path(inside).mkdir(parents=True, exist_ok=True)
    mount(spec["workspace"], inside, None, MS_BIND)
    call("pivot_root", root.encode(), f"{root}/old".encode())
    os.chdir("/")
    call("umount2", b"/old", MNT_DETACH)
    Path("/old").rmdir()
    set_attributes("/", ATTR_RDONLY, recursive=False)


def bring(path: str, root: str) -> None:
    """Bind something of the machine at the same place below the new root, read-only."""
    source, target = Path(path), Path(root + path)
    if source.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.readlink())
        return
    if not source.exists() or target.exists():
        return
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(path, str(target), None, MS_BIND | MS_REC)
    set_attributes(str(target), ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, recursive=True)


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


def loopback_up() -> None:
    """127.0.0.1 answers inside; nothing else does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", IFF_UP, b""))


def drop_capabilities() -> None:
    """Root inside is nobody in particular: no capability survives the next exec, and none can be gained."""
    for capability in range(LAST_CAPABILITY + 1):
        with suppress(OSError):  # beyond the kernel's last one
            call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


# -- processes -------------------------------------------------------------------------------------------------------------


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
        if spec["parent"] is None:  # a machine of its own: nobody else's processes are counted
            lower(resource.RLIMIT_NPROC, spec["processes"])
        drop_capabilities()  # for a runner that is root: the command could change the machine's mounts otherwise
        execute(spec)
    code = wait_for(main_process)
    kill_descendants()
    return code


def kill_descendants() -> None:
    """Kill until none is left; what they had started becomes ours, and is next."""
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


# -- both ------------------------------------------------------------------------------------------------------------------


def die_with_parent(number: signal.Signals, parent: int | None) -> None:
    """Get a signal when the runner dies, even by SIGKILL; at once when it is dead already."""
    call("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(125)


def limit(spec: dict[str, Any]) -> None:
    """What every process may use."""
    for kind, value in (
        (resource.RLIMIT_CPU, spec["cpu_s"]),
        (resource.RLIMIT_DATA, spec["memory_mb"] * 2**20),
        (resource.RLIMIT_FSIZE, spec["file_mb"] * 2**20),
        (resource.RLIMIT_CORE, 0),
    ):
        lower(kind, value)


def lower(kind: int, value: int) -> None:
    """Set a limit, unless it is lower already."""
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


def execute(spec: dict[str, Any]) -> NoReturn:
    """Become the command; a command that cannot be started exits with 127, as in a shell."""
    os.setsid()
    try:
        os.chdir(spec["root"])
        os.execvp(spec["command"][0], spec["command"])  # noqa: S606 - the command is a list, no shell
    except OSError as error:
        os.write(2, f"{spec['command'][0]}: {error.strerror}\n".encode())
        os._exit(127)


def wait_for(pid: int) -> int:
    """How a process ended, other children reaped on the way."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return exit_code(status)


def exit_code(status: int) -> int:
    """The exit code; 128 + the signal's number for one that was killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
