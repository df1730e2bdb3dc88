"""Sandboxes on this machine.

The sandboxes of a runner have their folders in one place, which it has locked. A killed runner loses its lock; the next
runner that starts removes its files.
"""

import asyncio
import fcntl
import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Literal

from agents.fork.folder_adapter import remove
from agents.fork.sandbox import Limits, SandboxError
from agents.fork.sandbox_adapter import LocalOptions, LocalSandbox
from agents.fork.uid_adapter import claim, first_usable


class LocalSandboxes:
    """Makes sandboxes below a folder."""

    def __init__(self, base: Path, options: LocalOptions, lock: int, name: str) -> None:
        self._options = options
        self._folder = base / name
        self._lock_path = base / f"{name}.lock"
        self._lock = lock
        self._made = 0
        self._alive: set[LocalSandbox] = set()
        self._first_uid = first_usable(options.first_uid) if os.geteuid() == 0 else None

    @classmethod
    async def open(cls, base: Path, options: LocalOptions = LocalOptions()) -> "LocalSandboxes":  # noqa: B008 - frozen
        """Remove the files of dead runners, and create a folder for this one. Raises SandboxError when commands cannot
        be closed in.
        """
        if sys.platform != "linux":
            raise SandboxError("local sandboxes need Linux; use --sandbox e2b")
        await asyncio.to_thread(sweep, base)
        lock, name = _claim(base)
        made = cls(base, options, lock, name)
        try:
            await made._try_out()
        except BaseException:
            await made.close()
            raise
        return made

    @property
    def runs_as(self) -> Literal["others", "root", "this user"]:
        """The user of the machine that commands run as: others are users that only one sandbox has."""
        if self._first_uid is not None:
            return "others"
        return "root" if os.geteuid() == 0 and self._options.isolation == "processes" else "this user"

    async def create(self) -> "LocalSandbox":
        """An empty sandbox. Raises SandboxError."""
        self._made += 1
        folder = self._folder / str(self._made)
        users = None if self._first_uid is None else await asyncio.to_thread(claim, self._first_uid)
        sandbox = LocalSandbox(folder, self._options, users, self._alive.discard)
        self._alive.add(sandbox)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.dispose()
            raise
        return sandbox

    async def close(self) -> None:
        """End the sandboxes that are left, and remove the folder with everything in it."""
        for sandbox in list(self._alive):
            await sandbox.dispose()
        await asyncio.to_thread(remove, self._folder)
        self._lock_path.unlink(missing_ok=True)
        with suppress(OSError):
            os.close(self._lock)

    async def _try_out(self) -> None:
        """Run Python in a sandbox: it must start, and be readable by the user that commands run as."""
        if await self._starts_python():
            return
        if self._options.isolation == "processes" and self._first_uid is not None:
            self._first_uid = None  # commands run as root, as docs/fork.md says
            if await self._starts_python():
                return
        raise SandboxError(
            f"{sys.executable} does not start in a sandbox: let every user read {sys.prefix} and {sys.base_prefix}"
        )

    async def _starts_python(self) -> bool:
        try:
            probe = await self.create()
            try:
                return (await probe.run([sys.executable, "-I", "-S", "-c", ""], Limits(timeout_s=20))).exit_code == 0
            finally:
                await probe.dispose()
        except SandboxError as error:
            if self._options.isolation == "processes":
                raise
            raise SandboxError(
                f"{error}; local sandboxes need user namespaces here. Allow them, use --sandbox e2b, or, where the machine is "
                "itself thrown away afterwards, set BRAID_FORK__ISOLATION=processes (agents then have your network and files)"
            ) from None


def _claim(base: Path) -> tuple[int, str]:
    """A name that is ours as long as we live."""
    while True:
        name = uuid.uuid4().hex[:12]
        path = base / f"{name}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():  # a sweeper may have been between the two
            (base / name).mkdir()
            return lock, name
        os.close(lock)


def sweep(base: Path) -> list[str]:
    """Remove the folders of runners that are dead; returns their names."""
    base.mkdir(parents=True, exist_ok=True)
    gone = []
    for path in sorted(base.glob("*.lock")):
        try:
            lock = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its runner lives
        else:
            remove(base / path.stem)
            path.unlink(missing_ok=True)
            gone.append(path.stem)
        finally:
            os.close(lock)
    return gone
