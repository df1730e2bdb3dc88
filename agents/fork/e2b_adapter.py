"""Sandboxes of E2B: a small machine each, reached through its SDK. The key is E2B_API_KEY.

Commands run under the same keeper as on this machine (with limits, and no process is left when they return). A reset
creates another machine: everything that a branch left in the old one is gone. A machine that is lost, or left running
because the runner was killed, ends by itself after `lifetime_s`.
"""

import asyncio
import io
import json
import os
import shlex
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
from e2b import AsyncSandbox, CommandExitException, FileNotFoundException, SandboxException, TimeoutException
from e2b import CommandResult as RemoteResult
from e2b.exceptions import AuthenticationException, NotFoundException, ServiceBusyException

from agents.fork.command_output import Collector
from agents.fork.sandbox import NO_ENV, ApartError, CommandResult, Ended, Harness, Limits, SandboxError, bounded
from agents.workspace.files import LEFT_OUT, MAX_FILES, MAX_TOTAL, File, FileProblemError, Files, checked, stays_inside
from agents.workspace.snapshot import tar_of

KEEPER = ("confine_adapter.py", "kernel_adapter.py")
"""The scripts of this folder that run in the sandbox."""

STOP_S = 5.0

TROUBLE = (SandboxException, AuthenticationException, ServiceBusyException, httpx.HTTPError, OSError)
"""Exceptions that the SDK raises when the service or the machine fails."""


class E2bOptions(NamedTuple):
    """Which machines."""

    template: str = ""
    """Empty: E2B's base template. It needs Python 3, tar and the dependencies of the task's tests."""
    root: str = "/home/user/workspace"
    internet: bool = False
    lifetime_s: int = 3600


class E2bSandboxes:
    """Makes sandboxes."""

    def __init__(self, options: E2bOptions) -> None:
        if not os.environ.get("E2B_API_KEY"):
            raise SandboxError("no key for E2B: set E2B_API_KEY, or use --sandbox local")
        self._options = options

    async def create(self) -> "E2bSandbox":
        """A new machine with an empty workspace. Raises SandboxError."""
        sandbox = E2bSandbox(self._options)
        await sandbox.start()
        return sandbox

    async def close(self) -> None:
        """Nothing to close besides the sandboxes."""


class E2bSandbox:
    """One machine."""

    def __init__(self, options: E2bOptions) -> None:
        self.root = options.root
        self._options = options
        self._machine: AsyncSandbox | None = None
        self._beside = os.path.dirname(options.root)  # noqa: PTH120 - a path over there
        self._keeper = f"{self._beside}/.braid/agents/fork"

    async def start(self) -> None:
        """Make the machine and its workspace."""
        async with _plainly("an E2B sandbox cannot be made"):
            self._machine = await AsyncSandbox.create(
                template=self._options.template or None,
                timeout=self._options.lifetime_s,
                allow_internet_access=self._options.internet,
            )
            try:
                for name in KEEPER:
                    script = Path(__file__).with_name(name).read_bytes()
                    await self._machine.files.write(f"{self._keeper}/{name}", script, use_octet_stream=True)
                await self._do(["mkdir", "-p", self.root])
            except BaseException:
                await self.dispose()
                raise

    # -- files ---------------------------------------------------------------------------------------------------------

    async def read(self, path: str) -> bytes:
        """A file's content. Raises FileProblemError."""
        place = f"{self.root}/{checked(path)}"
        async with _plainly(path):
            try:
                return bytes(await self._there.files.read(place, format="bytes"))
            except (FileNotFoundException, NotFoundException):
                raise FileProblemError("not_found", f"no such file: {path}") from None
            except SandboxException as error:
                if await self._there.is_running():
                    raise FileProblemError("unreadable", f"{path}: {error}") from None
                raise

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Create or replace a file, with its folders. Raises FileProblemError."""
        await self.put({path: File(content, executable)})

    async def put(self, files: Files) -> None:
        """Write many files."""
        if files:
            await self._put(self.root, files)

    async def _put(self, folder: str, files: Files) -> None:
        """Upload one archive, and unpack it there."""
        archive = f"{self.root}.in.tar"
        async with _plainly("files cannot be written"):
            packed = tar_of({checked(path): file for path, file in files.items()})
            await self._there.files.write(archive, packed, use_octet_stream=True)
            done = await self._do(["tar", "-xf", archive, "-C", folder, "--no-same-owner"], check=False)
            await self._do(["rm", "-f", archive])
        if done:
            raise FileProblemError("unwritable", f"{', '.join(list(files)[:3])}: {done}")

    async def files(self, under: str = ".") -> dict[str, File]:
        """All files below a folder of the workspace. Raises FileProblemError."""
        left_out = [f"--exclude={name}" for name in sorted(LEFT_OUT)]
        return _plain(await self._fetch(self.root, checked(under), left_out))

    async def everything(self, wanted: Callable[[str], bool]) -> dict[str, File | None]:
        """Every wanted name that is no folder; sockets are not seen. Raises FileProblemError."""
        found = await self._fetch(self.root, ".")
        return {path: file for path, file in found.items() if wanted(path)}

    async def _fetch(self, folder: str, under: str, left_out: Sequence[str] = ()) -> dict[str, File | None]:
        """Pack there, and download one archive."""
        archive = f"{self.root}.out.tar"
        async with _plainly("files cannot be read"):
            trouble = await self._do(
                ["tar", "--hard-dereference", "-cf", archive, "-C", folder, *left_out, under], check=False
            )
            if trouble:
                raise FileProblemError("not_found", f"no such folder: {under}")
            packed = bytes(await self._there.files.read(archive, format="bytes"))
            await self._do(["rm", "-f", archive])
        return _unpacked(packed)

    # -- commands ------------------------------------------------------------------------------------------------------

    async def run(
        self, command: Sequence[str], limits: Limits, env: Mapping[str, str] = NO_ENV, harness: Harness | None = None
    ) -> CommandResult:
        """Run a command in the workspace; all processes that it started have ended when this returns. Raises
        SandboxError.
        """
        if harness is None:
            return await self._run(command, limits, env)
        if harness.apart:
            raise ApartError(
                "tests cannot run apart from the work in a sandbox of E2B: verify with local sandboxes (verifier.sandbox = local)"
            )
        tests, logs = f"{self.root}.tests", f"{self.root}.logs"
        async with _plainly("the tests cannot be laid out"):
            await self._do(["mkdir", "-p", tests, logs])
        try:
            await self._put(tests, harness.tests)
            done = await self._run(command, limits, {**env, "TEST_DIR": tests, "LOGS_DIR": logs})
            return done._replace(reports=bounded(_plain(await self._fetch(logs, "."))))
        finally:
            async with _plainly("the tests cannot be removed"):
                await self._do(["rm", "-rf", tests, logs])

    async def _run(self, command: Sequence[str], limits: Limits, env: Mapping[str, str]) -> CommandResult:
        began = time.monotonic()
        out, err = Collector(), Collector()
        spec = {
            "command": list(command), "root": self.root, "parent": None, "uid": None, "status_fd": 2,
            "cpu_s": limits.cpu_s, "memory_mb": limits.memory_mb, "file_mb": limits.file_mb, "processes": limits.processes,
        }  # fmt: skip
        keeper = "exec " + shlex.join(["python3", "-I", "-S", f"{self._keeper}/{KEEPER[0]}", "keep", json.dumps(spec)])
        async with _plainly("a command cannot be run"):
            handle = await self._there.commands.run(
                keeper, background=True, cwd=self.root, timeout=limits.timeout_s + 4 * STOP_S, retain_output=False,
                envs={"LANG": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1", **env},
                on_stdout=lambda text: out.add(text.encode()), on_stderr=lambda text: err.add(text.encode()),
            )  # fmt: skip
            ended, code = Ended.EXITED, None
            waiting = asyncio.ensure_future(handle.wait())
            try:
                async with asyncio.timeout(limits.timeout_s):
                    code = (await asyncio.shield(waiting)).exit_code
            except CommandExitException as error:
                code = error.exit_code
            except TimeoutError:
                ended = Ended.TIMEOUT
            finally:
                await self._stop(handle.pid, waiting)
        return CommandResult(code, ended, out.finish(), err.finish(), round((time.monotonic() - began) * 1000))

    async def _stop(self, pid: int, waiting: "asyncio.Task[RemoteResult[None]]") -> None:
        """Make sure that the command has ended: the keeper stops it, with all its processes."""
        if not waiting.done():
            with suppress(CommandExitException):
                await self._there.commands.run(f"kill -TERM {pid}", timeout=STOP_S)
            with suppress(TimeoutError, CommandExitException):
                async with asyncio.timeout(STOP_S):
                    await asyncio.shield(waiting)
        if not waiting.done():
            waiting.cancel()
            raise SandboxError("a command could not be stopped")
        waiting.exception()

    async def _do(self, command: Sequence[str], *, check: bool = True) -> str:
        """Run a command of our own; return its standard error if it failed."""
        try:
            await self._there.commands.run(shlex.join(command), timeout=60)
        except CommandExitException as error:
            if check:
                raise
            return str(error.stderr or f"exit code {error.exit_code}")
        return ""

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def _there(self) -> AsyncSandbox:
        if self._machine is None:
            raise SandboxError("the sandbox is gone")
        return self._machine

    async def reset(self) -> None:
        """Replace this machine by a new one. Raises SandboxError."""
        await self.dispose()
        await self.start()

    async def dispose(self) -> None:
        """End the machine."""
        machine, self._machine = self._machine, None
        if machine is not None:
            with suppress(NotFoundException):
                async with _plainly("an E2B sandbox cannot be ended"):
                    await machine.kill()


@asynccontextmanager
async def _plainly(what: str) -> AsyncIterator[None]:
    """The SDK's trouble as ours."""
    try:
        yield
    except TimeoutException as error:
        raise SandboxError(f"{what}: E2B did not answer in time: {error}") from None
    except TROUBLE as error:
        raise SandboxError(f"{what}: {error}") from None


def _plain(found: Mapping[str, File | None]) -> dict[str, File]:
    return {path: file for path, file in found.items() if file is not None}


def _unpacked(packed: bytes) -> dict[str, File | None]:
    """The names of an archive made in the sandbox, which the agent controls: no part of it is trusted. None for
    anything but a plain file or an inner link.
    """
    found: dict[str, File | None] = {}
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as source:
            for entry in source:
                if entry.isdir():
                    continue
                path = checked(entry.name)
                total += entry.size
                if len(found) >= MAX_FILES or total > MAX_TOTAL:
                    raise FileProblemError("too_large", f"more than {MAX_FILES} files or {MAX_TOTAL} bytes")
                found[path] = _file(source, entry, path)
    except (tarfile.TarError, UnicodeError) as error:
        raise SandboxError(f"the workspace cannot be read: {error}") from None
    return dict(sorted(found.items()))


def _file(source: tarfile.TarFile, entry: tarfile.TarInfo, path: str) -> File | None:
    if entry.issym():
        return File(entry.linkname.encode(), link=True) if stays_inside(path, entry.linkname) else None
    content = source.extractfile(entry) if entry.isreg() else None
    return None if content is None else File(content.read(), executable=bool(entry.mode & 0o100))
