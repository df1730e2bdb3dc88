"""The file trees that confined commands see.

A view holds the system's programs (read-only), a private /tmp and /dev/shm, a few devices, a /proc that shows its own processes
and changes nothing, and the folders that its command works with: the workspace, or a task's tests and a place for their
reports. It contains nothing else of the machine, and its size is limited.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.fork.kernel_adapter import (
    ATTR_NODEV,
    ATTR_NOSUID,
    ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    change_root,
    mount,
    set_attributes,
)

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
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/ca-certificates/extracted",
    "/etc/crypto-policies",
)
"""Files of the machine that programs need: no homes, no keys, not the machine's /tmp, no configuration of its services."""

DEVICES = ("null", "zero", "full", "random", "urandom")

UNCHANGED = ("sys", "irq", "bus", "fs", "sysrq-trigger")
"""Parts of /proc that are read-only."""
HIDDEN = ("acpi", "asound", "kcore", "key-users", "keys", "kmsg", "latency_stats", "sched_debug", "scsi", "timer_list")
"""Parts of /proc with data about the machine and its users: replaced by empty ones."""

OWN = "/.braid"
WORKSPACE, HARNESS, VIEW = f"{OWN}/workspace", f"{OWN}/harness", f"{OWN}/view"
"""Paths in the holder's tree: the file system of the workspace, that of tests and reports, and the place where a
command's view is built.
"""

TESTS, LOGS = "/tests", "/logs/verifier"
"""As `agents.fork.sandbox` has them."""

HELPER = "/run/braid"
"""The folder of the program `work` and its socket, for the reporter."""

TMP = "size=256m,nr_inodes=32k,mode=1777"
SHARED = "size=64m,nr_inodes=4k,mode=1777"
USERS = "root:x:0:0:root:/tmp:/bin/sh\nreporter:x:1:1:reporter:/tmp:/bin/sh\n"
PRIVATE = MS_NOSUID | MS_NODEV


def gather(spec: dict[str, Any], owner: int) -> None:
    """Change to a root that holds only the parts of views; everything else of the machine is detached.

    Made with the permissions of the user who started this, so that it includes files below a folder that only this user
    can enter.
    """
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = spec["scratch"]
    mount("tmpfs", root, "tmpfs", PRIVATE, "size=4m,mode=755")
    for path in (*SYSTEM, *spec["readonly"], *(f"/dev/{name}" for name in DEVICES)):
        bring(path, root)
    Path(root, "proc").mkdir()
    mount("/proc", f"{root}/proc", None, MS_BIND | MS_REC)  # a new /proc can be mounted only if one is visible
    for place in (WORKSPACE, HARNESS, VIEW):
        Path(root + place).mkdir(parents=True)
    owned = f"uid={owner},gid={owner},mode=755"
    mount(
        "tmpfs", root + WORKSPACE, "tmpfs", PRIVATE, f"size={spec['workspace_mb']}m,nr_inodes={spec['inodes']},{owned}"
    )
    mount("tmpfs", root + HARNESS, "tmpfs", PRIVATE, f"size=256m,nr_inodes=32k,{owned}")
    change_root(root)


def build_view(root: str, readonly: Iterable[str]) -> None:
    """Mount a root with the system's programs and private places; /proc is mounted by the process that enters it."""
    mount("tmpfs", root, "tmpfs", PRIVATE, "size=4m,mode=755")
    for folder in ("dev", "proc", "tmp", "dev/shm", "etc", "run"):
        Path(root, folder).mkdir(parents=True, exist_ok=True)
    mount("tmpfs", f"{root}/tmp", "tmpfs", PRIVATE, TMP)  # noqa: S108 - private
    for path in (*SYSTEM, *readonly):  # after that: the Python that runs us may lie in the machine's /tmp
        bring(path, root)
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", PRIVATE, SHARED)  # noqa: S108 - private
    for name in DEVICES:
        Path(root, "dev", name).touch()
        mount(f"/dev/{name}", f"{root}/dev/{name}", None, MS_BIND)
    Path(root, "dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        Path(root, "dev", name).symlink_to(f"/proc/self/fd/{number}")
    Path(root, "etc/passwd").write_text(USERS)
    Path(root, "etc/group").write_text("root:x:0:\nreporter:x:1:\n")
    Path(root, "etc/hosts").write_text("127.0.0.1 localhost\n")


def bring(path: str, root: str) -> None:
    """Bind a file or folder at the same place below another root, read-only; a missing one is skipped."""
    source, target = Path(path), Path(root + path)
    if source.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            target.symlink_to(source.readlink())
        return
    if not source.exists() or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    mount(path, str(target), None, MS_BIND | MS_REC)
    if not path.startswith("/dev/"):
        set_attributes(str(target), ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, recursive=True)


def bring_folder(source: str, root: str, inside: str, *, writable: bool) -> None:
    """Bind a folder at another place below the new root."""
    target = Path(root + inside)
    target.mkdir(parents=True, exist_ok=True)
    mount(source, str(target), None, MS_BIND)
    set_attributes(str(target), ATTR_NOSUID | ATTR_NODEV | (0 if writable else ATTR_RDONLY), recursive=False)


def bring_harness(root: str) -> None:
    """The tests and the place for reports."""
    bring_folder(f"{HARNESS}/tests", root, TESTS, writable=False)
    bring_folder(f"{HARNESS}/logs", root, LOGS, writable=True)


def bring_helper(harness: dict[str, Any], root: str) -> None:
    """The program `work`: a copy, started with the Python that runs this."""
    folder = Path(root + HELPER)
    folder.mkdir(parents=True)
    folder.joinpath("work.py").write_text(harness["program"])
    starter = folder / "work"
    starter.write_text(f'#!/bin/sh\nexec "{harness["python"]}" -I -S {HELPER}/work.py "$@"\n')
    starter.chmod(0o755)


def show_processes(root: str) -> None:
    """Mount /proc for the PID namespace of the calling process; nothing in it changes the machine or reveals its keys."""
    mount("proc", f"{root}/proc", "proc", PRIVATE | MS_NOEXEC)
    for name in UNCHANGED:
        place = f"{root}/proc/{name}"
        if os.path.lexists(place):
            mount(place, place, None, MS_BIND | MS_REC)
            set_attributes(place, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, recursive=True)
    for name in HIDDEN:
        place = f"{root}/proc/{name}"
        if Path(place).is_dir():
            mount("tmpfs", place, "tmpfs", PRIVATE, "size=4k,nr_inodes=1,mode=555")
            set_attributes(place, ATTR_RDONLY, recursive=False)
        elif os.path.lexists(place):
            mount(f"{root}/dev/null", place, None, MS_BIND)


def seal(root: str) -> None:
    """Make the view's own tree read-only; the mounts in it keep their permissions."""
    set_attributes(root, ATTR_RDONLY, recursive=False)
