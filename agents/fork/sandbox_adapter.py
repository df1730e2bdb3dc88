"""One sandbox on this machine: a workspace, and commands that are closed in by namespaces, or by limits alone.

With namespaces, its files are in memory, in file systems of limited size that only its holder has: they disappear with
it, however it ends. Nothing runs between commands, so files need no locks.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from agents.fork.command_output import Collector
from agents.fork.folder_adapter import Folder, remove
from agents.fork.holder_adapter import Command, Holder, KeptCommand
from agents.fork.sandbox import (
    LOGS,
    MAX_REPORTS,
    MAX_REPORTS_BYTES,
    NO_ENV,
    TESTS,
    ApartError,
    CommandResult,
    Ended,
    Harness,
    Limits,
    SandboxError,
    bounded,
)
from agents.fork.uid_adapter import FIRST_UID, Users
from agents.fork.views_adapter import HELPER
from agents.workspace.files import File, FileProblemError, Files
from agents.workspace.tree_adapter import everything

WORK = Path(__file__).with_name("work_adapter.py")

INSIDE = "/workspace"
"""The path of the workspace for commands with a root of their own: the same for every branch on every machine."""

STOP_S = 5.0
"""Time that a stopped command gets to end before its keeper is killed; the kernel does the rest."""

CHUNK = 64 * 1024

Isolation = Literal["namespaces", "processes"]
"""How well a command is closed in: see `confine_adapter`. The weaker one is used only if it is configured."""


class LocalOptions(NamedTuple):
    """The limits of sandboxes on this machine."""

    isolation: Isolation = "namespaces"
    workspace_mb: int = 1024
    """Of a workspace, in memory; 1 MiB has room for 256 files."""
    first_uid: int = FIRST_UID
    """Started by root, sandboxes run as users of the machine from this number on."""


class LocalSandbox:
    """A workspace and the commands that run in it."""

    def __init__(
        self, folder: Path, options: LocalOptions, users: Users | None, gone: Callable[["LocalSandbox"], None]
    ) -> None:
        self.root = INSIDE if options.isolation == "namespaces" else str(folder / "workspace")
        self._options, self._users = options, users
        self._folder, self._gone = folder, gone
        self._scratch = folder / "root"
        self._holder: Holder | None = None
        self._files: Folder | None = None
        self._harness: Folder | None = None
        self._running: dict[Command, asyncio.Future[int]] = {}
        self._scratch.mkdir(parents=True)

    async def start(self) -> None:
        """Make the workspace. Raises SandboxError."""
        owner = None if self._users is None else self._users.uids[0]
        if self._options.isolation == "namespaces":
            self._holder = await Holder.start(self._spec())
            self._files, self._harness = Folder(self._holder.folders[0], owner), Folder(self._holder.folders[1])
            return
        for name in ("workspace", "harness"):
            (self._folder / name).mkdir()
        folders = [os.open(self._folder / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("workspace", "harness")]
        if owner is not None:
            os.fchown(folders[0], owner, owner)
        self._files, self._harness = Folder(folders[0], owner), Folder(folders[1])

    def _spec(self) -> dict[str, object]:
        return {
            "scratch": str(self._scratch),
            "readonly": sorted({sys.prefix, sys.base_prefix}),
            "uids": None if self._users is None else self._users.uids,
            "workspace_mb": self._options.workspace_mb,
            "inodes": 256 * self._options.workspace_mb,
        }

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def _workspace(self) -> Folder:
        if self._files is None:
            raise SandboxError(f"{self._folder} is gone")
        return self._files

    async def read(self, path: str) -> bytes:
        """A file's content. Raises FileProblemError."""
        return await asyncio.to_thread(self._workspace.read, path)

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Create or replace a file, with its folders. Raises FileProblemError."""
        await asyncio.to_thread(self._workspace.write, path, File(content, executable))

    async def put(self, files: Files) -> None:
        """Write many files."""
        await asyncio.to_thread(_write_all, self._workspace, files)

    async def files(self, under: str = ".") -> dict[str, File]:
        """All files below a folder. Raises FileProblemError."""
        return await asyncio.to_thread(self._workspace.files, under)

    async def everything(self, wanted: Callable[[str], bool]) -> dict[str, File | None]:
        """Every wanted name but folders. Raises FileProblemError."""
        return await asyncio.to_thread(everything, self._workspace.path, wanted)

    # -- commands ------------------------------------------------------------------------------------------------------

    async def run(
        self, command: Sequence[str], limits: Limits, env: Mapping[str, str] = NO_ENV, harness: Harness | None = None
    ) -> CommandResult:
        """Run a command in the workspace; all processes that it started have ended when this returns. Raises
        SandboxError.
        """
        if harness is None:
            return await self._run(command, limits, _environment(env), None)
        closed = self._options.isolation == "namespaces"
        if harness.apart and not closed:
            raise ApartError(
                "tests cannot run apart from the work without namespaces: unset BRAID_FORK__ISOLATION=processes and allow "
                "user namespaces on this machine, or verify on a machine that has them"
            )
        folder = self._harness
        if folder is None:
            raise SandboxError(f"{self._folder} is gone")
        tests, logs = (TESTS, LOGS) if closed else (str(self._folder / "harness" / name) for name in ("tests", "logs"))
        named = {"TEST_DIR": tests, "LOGS_DIR": logs, **env}
        try:
            await asyncio.to_thread(self._lay_out, folder, harness)
            done = await self._run(command, limits, _environment(named, helper=harness.apart), _harness_spec(harness))
            return done._replace(reports=await asyncio.to_thread(_reports, folder))
        except (OSError, FileProblemError) as error:
            raise SandboxError(f"the tests cannot be laid out: {error}") from None

    async def _run(
        self, command: Sequence[str], limits: Limits, env: Mapping[str, str], harness: dict[str, object] | None
    ) -> CommandResult:
        began = time.monotonic()
        out, err = Collector(), Collector()
        starting = asyncio.ensure_future(self._start(command, limits, env, harness))
        try:
            running = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(SandboxError):
                late = await starting
                await _stop(late, _ending(late, out, err))
            raise
        ending = self._running[running] = _ending(running, out, err)
        ended, code = Ended.EXITED, None
        try:
            async with asyncio.timeout(limits.timeout_s):
                code = await asyncio.shield(ending)
        except TimeoutError:
            ended = Ended.TIMEOUT
        finally:
            try:
                await _stop(running, ending)
            finally:
                del self._running[running]
        return CommandResult(code, ended, out.finish(), err.finish(), round((time.monotonic() - began) * 1000))

    async def _start(
        self, command: Sequence[str], limits: Limits, env: Mapping[str, str], harness: dict[str, object] | None
    ) -> Command:
        if self._files is None:
            raise SandboxError(f"{self._folder} is gone")
        asked = {
            "command": list(command),
            "cpu_s": limits.cpu_s,
            "memory_mb": limits.memory_mb,
            "file_mb": limits.file_mb,
            "processes": limits.processes,
        }
        if self._holder is not None:
            return await self._holder.run(asked | {"env": dict(env), "harness": harness})
        user = None if self._users is None else self._users.uids[0]
        return await KeptCommand.start(asked | {"root": self.root, "uid": user}, env)

    def _lay_out(self, folder: Folder, harness: Harness) -> None:
        """Write the tests, and next to them an empty folder for reports, which belongs to the user that writes them."""
        folder.clear()
        folder.make("tests")
        folder.make("logs", None if self._users is None else self._users.uids[harness.apart])
        for path, file in harness.tests.items():
            folder.write(f"tests/{path}", file)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def reset(self) -> None:
        """Empty the workspace for the next one. Raises SandboxError when it is broken."""
        if self._files is None or not self._scratch.is_dir():
            raise SandboxError(f"{self._folder} is damaged")
        await self._end()
        await self.start()

    async def dispose(self) -> None:
        """Remove it."""
        await self._end()
        await asyncio.to_thread(remove, self._folder)
        if self._users is not None:
            self._users.release()
            self._users = None
        self._gone(self)

    async def _end(self) -> None:
        """Stop running commands (their callers get a result), and remove all files."""
        for running in self._running:
            running.stop()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=3 * STOP_S)
        (holder, self._holder), (files, self._files) = (self._holder, None), (self._files, None)
        harness, self._harness = self._harness, None
        if holder is not None:
            await holder.end()
        elif files is not None and harness is not None:
            files.close()
            harness.close()
        for name in ("workspace", "harness"):
            await asyncio.to_thread(remove, self._folder / name)


def _write_all(folder: Folder, files: Files) -> None:
    for path, file in files.items():
        folder.write(path, file)


def _harness_spec(harness: Harness) -> dict[str, object]:
    return {"apart": harness.apart, "program": WORK.read_text(), "python": sys.executable}


def _reports(folder: Folder) -> Files:
    """The plain files that a test run left, if they are few and small."""
    try:
        found = folder.files("logs", MAX_REPORTS, MAX_REPORTS_BYTES)
    except FileProblemError:
        return {}
    return bounded({path.removeprefix("logs/"): file for path, file in found.items()})


def _environment(env: Mapping[str, str], *, helper: bool = False) -> dict[str, str]:
    """The environment of a command: it has nothing of the runner's own environment, which contains its keys."""
    places = [str(Path(sys.prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
    return {
        "PATH": os.pathsep.join([HELPER, *places] if helper else places),
        "HOME": "/tmp",  # noqa: S108 - inside
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the Python inside is ours: its plugins are not the task's
        **env,
    }


def _ending(running: Command, out: Collector, err: Collector) -> "asyncio.Future[int]":
    """A command's end: both of its streams, then its exit code."""

    async def end() -> int:
        await asyncio.gather(_collect(running.stdout, out), _collect(running.stderr, err))
        return await running.code()

    return asyncio.ensure_future(end())


async def _collect(stream: asyncio.StreamReader, into: Collector) -> None:
    while chunk := await stream.read(CHUNK):
        into.add(chunk)


async def _stop(running: Command, ending: "asyncio.Future[int]") -> None:
    """Make sure that the command has ended: the keeper is asked first, so that the end of the last process is known."""
    for stop in (running.stop, running.kill):
        if not ending.done():
            stop()
        with suppress(TimeoutError, SandboxError):
            async with asyncio.timeout(STOP_S):
                await asyncio.shield(ending)
        if ending.done():
            return
    ending.cancel()
    raise SandboxError("a command could not be stopped")
