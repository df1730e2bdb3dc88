"""The file trees that confined commands see.

A view holds the system's programs (read-only), a private /tmp and /dev/shm, a few devices, and the folders that its command
works with: the workspace, or a task's tests and a place for their reports. Nothing else of the machine is in it.
"""

from collections.abc import Iterable
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
    MS_REC,
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
    "/etc/ssl",
)
"""Files of the machine that programs need: no homes, none of /etc's secrets, not the machine's /tmp."""

DEVICES = ("null", "zero", "full", "random", "urandom")

TESTS, LOGS = "/tests", "/logs/verifier"
"""As `agents.fork.sandbox` has them."""

HELPER = "/run/braid"
"""Where the reporter finds the program `work` and its socket."""


def build_view(root: str, readonly: Iterable[str]) -> None:
    """Mount a root that holds the system's programs and private places; /proc is mounted by the process that enters it."""
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=755")
    for folder in ("dev", "proc", "tmp", "dev/shm", "etc", "run"):
        Path(root, folder).mkdir(parents=True, exist_ok=True)
    mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=1777")  # noqa: S108 - private
    for path in (*SYSTEM, *readonly):  # after that: the Python that runs us may lie in the machine's /tmp
        bring(path, root)
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")  # noqa: S108 - private
    for name in DEVICES:
        Path(root, "dev", name).touch()
        mount(f"/dev/{name}", f"{root}/dev/{name}", None, MS_BIND)
    Path(root, "dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        Path(root, "dev", name).symlink_to(f"/proc/self/fd/{number}")
    Path(root, "etc/passwd").write_text("root:x:0:0:root:/tmp:/bin/sh\n")
    Path(root, "etc/group").write_text("root:x:0:\n")
    Path(root, "etc/hosts").write_text("127.0.0.1 localhost\n")


def bring(path: str, root: str) -> None:
    """Bind a file or folder of the machine at the same place below the new root, read-only."""
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


def bring_folder(source: str, root: str, inside: str, *, writable: bool) -> None:
    """Bind a folder at another place below the new root."""
    target = Path(root + inside)
    target.mkdir(parents=True, exist_ok=True)
    mount(source, str(target), None, MS_BIND)
    set_attributes(str(target), ATTR_NOSUID | ATTR_NODEV | (0 if writable else ATTR_RDONLY), recursive=False)


def bring_harness(harness: dict[str, Any], root: str) -> None:
    """The tests and the place for reports."""
    bring_folder(harness["tests"], root, TESTS, writable=False)
    bring_folder(harness["logs"], root, LOGS, writable=True)


def bring_helper(harness: dict[str, Any], root: str) -> None:
    """The program `work`: a copy, started with the Python that runs this."""
    folder = Path(root + HELPER)
    folder.mkdir(parents=True)
    folder.joinpath("work.py").write_text(harness["program"])
    starter = folder / "work"
    starter.write_text(f'#!/bin/sh\nexec "{harness["python"]}" -I -S {HELPER}/work.py "$@"\n')
    starter.chmod(0o755)


def show_processes(root: str) -> None:
    """Mount /proc for the PID namespace of the calling process."""
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def seal(root: str) -> None:
    """Make the view's own tree read-only; the mounts in it keep what they allow."""
    set_attributes(root, ATTR_RDONLY, recursive=False)
