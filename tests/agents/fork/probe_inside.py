"""Run inside a sandbox: tries to get out, and prints what it reached, by name, as JSON. Imports nothing of ours."""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, KEYCTL_SEARCH, SESSION_KEYRING = 0x4206, 10, -3
NEW_NS, NEW_USER, MS_REMOUNT, MS_BIND = 0x20000, 0x10000000, 32, 4096


def main():
    asked = json.loads(Path("asked.json").read_text())
    sys.stdout.write(json.dumps({name: PROBES[name](asked) for name in asked["probes"]}))


def writable(*paths):
    """Those of the files that open for writing; nothing is written."""
    reached = []
    for path in paths:
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY))
            reached.append(path)
    return reached


def settings(_):
    """Settings of the machine: every file below /proc/sys, and what stands beside it."""
    below = [
        str(place) for top in ("sys", "irq", "bus", "fs") for place in Path("/proc", top).rglob("*") if place.is_file()
    ]
    return [*writable(*below, "/proc/sysrq-trigger", "/proc/kcore", "/proc/acpi/wakeup"), *Path("/").glob("sys/*")]


def told(_):
    """Files that tell about the machine and its users."""
    reached = []
    for name in ("kcore", "keys", "key-users", "kmsg", "timer_list", "sched_debug"):
        with suppress(OSError), Path("/proc", name).open("rb") as source:
            reached += [name] if source.read(1) else []
    return reached


def keys(asked):
    """Private keys and passwords of the machine, and a key of the runner's session."""
    names = (
        "/etc/ssl/private",
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/ssh",
        "/etc/npmrc",
        "/etc/pip.conf",
        "/etc/machine-id",
    )
    reached = [name for name in names if os.path.lexists(name)]
    for place in Path("/etc").rglob("*"):
        with suppress(OSError):
            reached += [str(place)] if not place.is_symlink() and b"PRIVATE KEY-----" in place.read_bytes() else []
    found = libc.syscall(asked["keyctl"], KEYCTL_SEARCH, SESSION_KEYRING, b"user", asked["key"].encode(), 0)
    return [*reached, "a key of the session"] if found > 0 else reached


def files(asked):
    """Files that the runner, another sandbox and another branch have, by their name."""
    reached = []
    for parent, folders, names in os.walk("/"):
        if parent in ("/usr", "/proc"):
            folders.clear()
        reached += [parent for name in names if name == asked["secret"]]
    for place in (asked["runner"], *asked["others"]):
        reached += [place] if os.path.lexists(place) else []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                reached += [str(entry)] if list((entry / "root").rglob(asked["secret"])) else []
    return reached


def ports(asked):
    """Listeners of the machine: TCP, and sockets with an abstract and a plain name."""
    reached = []
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", asked["port"])),
        (socket.AF_INET, (asked["address"], asked["port"])),
        (socket.AF_UNIX, "\0" + asked["abstract"]),
        (socket.AF_UNIX, asked["path"]),
    ):
        with socket.socket(family) as tried:
            tried.settimeout(2)
            with suppress(OSError):
                tried.connect(address)
                reached.append(str(address))
    return reached


def kernel(_):
    """Parts of the kernel that no namespace holds: other kinds of sockets, its log, io_uring, the handler of core dumps."""
    reached = []
    for family in range(64):
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM):
            reached += (
                [] if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6) else [f"sockets of family {family}"]
            )
    reached += ["the kernel's log"] if libc.klogctl(3, ctypes.create_string_buffer(99), 99) > 0 else []
    reached += ["io_uring"] if libc.syscall(425, 1, ctypes.create_string_buffer(256)) >= 0 else []
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return [*reached, *(["core dumps"] if resource.getrlimit(resource.RLIMIT_CORE) != (1, 1) else [])]


def mounts(_):
    """Mounts, devices, root, and the same from a user namespace of one's own."""
    reached = tried_mounts()
    child = os.fork()
    if child == 0:
        if libc.unshare(NEW_USER | NEW_NS) == 0:
            os._exit(2 if tried_mounts() or writable("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger") else 1)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return reached + ["", ["a user namespace"], ["more from a user namespace"]][ended] if ended else reached


def tried_mounts():
    done = {
        "mount tmpfs": libc.mount(b"x", b"/tmp", b"tmpfs", 0, None),
        "mount proc": libc.mount(b"x", b"/tmp", b"proc", 0, None),
        "remount": libc.mount(b"x", b"/usr", None, MS_REMOUNT | MS_BIND, None),
        "bind": libc.mount(b"/proc/sys", b"/tmp", None, MS_BIND, None),
        "umount": libc.umount2(b"/proc/sys", 2),
        "chroot": libc.chroot(b"/tmp"),
        "hostname": libc.sethostname(b"x", 1),
        "device": libc.mknod(b"/tmp/device", stat.S_IFCHR | 0o666, os.makedev(1, 1)),
    }
    return [name for name, result in done.items() if result == 0]


def powers(_):
    """Capabilities, programs that raise them, and limits that can be raised."""
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    reached = [name for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb") if int(status[name], 16)]
    reached += [] if status["NoNewPrivs"] == "1" else ["new privileges"]
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, options = line.split()[4:6]
        if "nosuid" not in options and not Path(place).is_char_device():
            reached.append(f"set-user-id files in {place}")
    for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            reached += [f"limit {kind}"] if resource.getrlimit(kind)[1] == resource.RLIM_INFINITY else []
    return reached


def processes(asked):
    """Other processes: the runner, and the one that keeps this."""
    reached = []
    if asked["pid"]:
        with suppress(OSError):
            os.kill(asked["pid"], 0)
            reached.append("a signal to the runner")
    for pid in (asked["pid"] or 1, 1):
        reached += [f"trace {pid}"] if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0 else []
        reached += writable(f"/proc/{pid}/mem")
        with suppress(OSError):
            reached += [str(place) for place in Path(f"/proc/{pid}/fd").iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and asked["mark"].encode() in (entry / "cmdline").read_bytes():
            reached.append(f"process {entry.name}")
    return reached


def bomb(asked):
    """Processes until there are no more; returns how many, when they are more than the limit."""
    made = []
    try:
        while len(made) < 4 * asked["processes"]:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            made.append(child)
    except BlockingIOError:
        pass
    for child in made:
        os.kill(child, signal.SIGKILL)
    return [len(made)] if len(made) >= asked["processes"] else []


def disk(asked):
    """Bytes and files until a disk is full: large, tiny and unlinked ones; and folders beside those that can be written to."""
    reached = []
    for parent, folders, _ in os.walk("/"):
        folders[:] = [name for name in folders if str(Path(parent, name)) not in ("/proc", *asked["folders"])]
        reached += [parent] if os.access(parent, os.W_OK) else []
    for folder, limit_mb in asked["folders"].items():
        for size, unlinked, most in ((2**20, False, limit_mb), (2**20, True, limit_mb), (1, False, 256 * limit_mb)):
            made = filled(Path(folder), size, unlinked=unlinked)
            reached += [f"{folder}: {made} files of {size} bytes"] if made > most else []
    return reached


def filled(folder, size, *, unlinked):
    """How many files of a size there is room for; they are removed. A sparse one of a terabyte is not possible."""
    made = []
    full = False
    while not full and len(made) < 400_000:
        place = folder / f"{len(made)}"
        try:
            opened = os.open(place, os.O_WRONLY | os.O_CREAT)
        except OSError:
            break
        made.append((place, opened))
        if unlinked:
            place.unlink()
        try:
            full = os.write(opened, b"x" * size) < size
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        with suppress(OSError):
            os.truncate(opened, 2**40)
            return 2**40
        if not unlinked:
            os.close(opened)
    for place, opened in made:
        if unlinked:
            os.close(opened)
        else:
            place.unlink()
    return len(made) - full


def core(_):
    """A dump of a process that crashed: a file, or the machine's handler."""
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGABRT)
        time.sleep(60)
    dumped = os.WCOREDUMP(os.waitpid(child, 0)[1])
    return [*(["dumped"] if dumped else []), *(str(place) for place in Path.cwd().glob("*core*"))]


def daemon(asked):
    """Leave a process behind, in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", asked["daemon"]])
        os._exit(0)
    return []


PROBES = {
    each.__name__: each
    for each in (settings, told, keys, files, ports, kernel, mounts, powers, processes, bomb, disk, core, daemon)
}

if __name__ == "__main__":
    main()
