"""Sandboxes on this machine: a directory each, and commands that are confined by `confine_adapter`.

A runner's sandboxes lie in one folder that it holds a lock on. A runner that was killed loses its lock with its life; the
next one to start sweeps what it left. Nothing runs between commands, so files need no locks.
"""

import asyncio
import fcntl
import json
import os
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from agents.fork.command_output import Collector
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
from agents.fork.views_adapter import HELPER
from agents.workspace.files import MAX_FILES, MAX_TOTAL, File, FileProblemError, Files, checked, is_kept, stays_inside
from agents.workspace.tree_adapter import everything

CONFINE = Path(__file__).with_name("confine_adapter.py")
WORK = Path(__file__).with_name("work_adapter.py")

INSIDE = "/workspace"
"""Where commands see the workspace when they have a root of their own: the same for every branch on every machine."""

STOP_S = 5.0
"""A command that is stopped gets this long to be gone before its keeper is killed; the kernel does the rest."""

CHUNK = 64 * 1024

Isolation = Literal["namespaces", "processes"]
"""How well a command is closed in: see `confine_adapter`. The weaker one is never chosen for somebody."""


class LocalSandboxes:
    """Makes sandboxes below a folder."""

    def __init__(self, base: Path, isolation: Isolation, lock: int, name: str) -> None:
        self._isolation = isolation
        self._folder = base / name
        self._lock_path = base / f"{name}.lock"
        self._lock = lock
        self._made = 0

    @classmethod
    async def open(cls, base: Path, isolation: Isolation = "namespaces") -> "LocalSandboxes":
        """Sweep what dead runners left, and make a place for this one's. Raises SandboxError when commands cannot be closed in."""
        if sys.platform != "linux":
            raise SandboxError("local sandboxes need Linux; use --sandbox e2b")
        await asyncio.to_thread(sweep, base)
        lock, name = _claim(base)
        made = cls(base, isolation, lock, name)
        try:
            await made._try_out()
        except BaseException:
            await made.close()
            raise
        return made

    async def create(self) -> "LocalSandbox":
        """An empty sandbox."""
        self._made += 1
        return LocalSandbox(self._folder / str(self._made), self._isolation)

    async def close(self) -> None:
        """Remove the folder with everything in it."""
        await asyncio.to_thread(_remove, self._folder)
        self._lock_path.unlink(missing_ok=True)
        with suppress(OSError):
            os.close(self._lock)

    async def _try_out(self) -> None:
        probe = await self.create()
        try:
            await probe.run(["true"], Limits(timeout_s=20))
        except SandboxError as error:
            raise SandboxError(
                f"{error}; local sandboxes need user namespaces here. Allow them, use --sandbox e2b, or, where the machine is "
                "itself thrown away afterwards, set BRAID_FORK__ISOLATION=processes (agents then have your network and files)"
            ) from None
        finally:
            await probe.dispose()


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
            _remove(base / path.stem)
            path.unlink(missing_ok=True)
            gone.append(path.stem)
        finally:
            os.close(lock)
    return gone


class LocalSandbox:
    """A directory and the commands that run in it."""

    def __init__(self, folder: Path, isolation: Isolation) -> None:
        self._workspace = folder / "workspace"
        self._scratch = folder / "root"
        self._folder = folder
        self._isolation = isolation
        self._running: set[asyncio.subprocess.Process] = set()
        self._workspace.mkdir(parents=True)
        self._scratch.mkdir()
        self.root = INSIDE if isolation == "namespaces" else str(self._workspace)

    # -- files ---------------------------------------------------------------------------------------------------------

    async def read(self, path: str) -> bytes:
        """A file's content. Raises FileProblemError."""
        return await asyncio.to_thread(self._read, path)

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Create or replace a file, with its folders. Raises FileProblemError."""
        await asyncio.to_thread(self._write, path, File(content, executable))

    async def put(self, files: Files) -> None:
        """Write many files."""
        await asyncio.to_thread(self._write_all, files)

    async def files(self, under: str = ".") -> dict[str, File]:
        """All files below a folder. Raises FileProblemError."""
        return await asyncio.to_thread(self._files, under)

    async def everything(self, wanted: Callable[[str], bool]) -> dict[str, File | None]:
        """Every wanted name that is no folder. Raises FileProblemError."""
        return await asyncio.to_thread(everything, self._workspace, wanted)

    def _place(self, path: str) -> Path:
        """Where a path really is; links that lead out of the workspace lead nowhere."""
        place = self._workspace / checked(path)
        root = self._workspace.resolve()
        if not place.resolve().is_relative_to(root):
            raise FileProblemError("bad_path", f"{path}: leads out of the workspace")
        return place

    def _read(self, path: str) -> bytes:
        place = self._place(path)
        try:
            if not stat.S_ISREG(place.stat().st_mode):  # a pipe would keep us waiting
                raise FileProblemError("not_a_file", f"not a file: {path}")
            if place.stat().st_size > MAX_TOTAL:
                raise FileProblemError("too_large", f"{path}: over {MAX_TOTAL} bytes")
            return place.read_bytes()
        except FileNotFoundError:
            raise FileProblemError("not_found", f"no such file: {path}") from None
        except OSError as error:
            raise FileProblemError("unreadable", f"{path}: {error.strerror}") from None

    def _write(self, path: str, file: File) -> None:
        place = self._place(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.link:
                place.symlink_to(file.content.decode())
                return
            if place.exists() and not place.is_file():
                raise FileProblemError("not_a_file", f"not a file: {path}")
            place.write_bytes(file.content)
            place.chmod(0o755 if file.executable else 0o644)
        except OSError as error:
            raise FileProblemError("unwritable", f"{path}: {error.strerror}") from None

    def _write_all(self, files: Files) -> None:
        for path, file in files.items():
            self._write(path, file)

    def _files(self, under: str) -> dict[str, File]:
        start = self._place(under)
        if not start.is_dir():
            raise FileProblemError("not_found", f"no such folder: {under}")
        found: dict[str, File] = {}
        total = 0
        for parent, folders, names in os.walk(start):
            folders[:] = sorted(name for name in folders if is_kept(name))
            links = [name for name in folders if Path(parent, name).is_symlink()]
            for name in sorted([*names, *links]):
                place = Path(parent, name)
                path = place.relative_to(self._workspace).as_posix()
                file = _file_at(place, path)
                if file is None:
                    continue
                found[path] = file
                total += len(file.content)
                if len(found) > MAX_FILES or total > MAX_TOTAL:
                    raise FileProblemError("too_large", f"more than {MAX_FILES} files or {MAX_TOTAL} bytes")
        return dict(sorted(found.items()))

    # -- commands ------------------------------------------------------------------------------------------------------

    async def run(
        self, command: Sequence[str], limits: Limits, env: Mapping[str, str] = NO_ENV, harness: Harness | None = None
    ) -> CommandResult:
        """Run a command in the workspace; nothing that it started is left when this returns. Raises SandboxError."""
        if not self._workspace.is_dir():
            raise SandboxError(f"{self._workspace} is gone")
        if harness is None:
            return await self._run(command, limits, env, None)
        if harness.apart and self._isolation != "namespaces":
            raise ApartError(
                "tests cannot run apart from the work without namespaces: unset BRAID_FORK__ISOLATION=processes and allow "
                "user namespaces on this machine, or verify on a machine that has them"
            )
        folder = self._folder / "harness"
        try:
            await asyncio.to_thread(_lay_out, folder, harness.tests)
            places = (TESTS, LOGS) if self._isolation == "namespaces" else (str(folder / "tests"), str(folder / "logs"))
            named = {"TEST_DIR": places[0], "LOGS_DIR": places[1], **env}
            done = await self._run(command, limits, named, self._harness_spec(folder, harness))
            return done._replace(reports=await asyncio.to_thread(_reports, folder / "logs"))
        except OSError as error:
            raise SandboxError(f"{folder}: {error}") from None
        finally:
            await asyncio.to_thread(_remove, folder)

    async def _run(
        self, command: Sequence[str], limits: Limits, env: Mapping[str, str], harness: dict[str, object] | None
    ) -> CommandResult:
        began = time.monotonic()
        status_read, status_write = os.pipe()
        try:
            spec = self._spec(command, limits, status_write) | {"harness": harness}
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(CONFINE), json.dumps(spec), env=_environment(env, harness),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                pass_fds=(status_write,), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(status_read)
            raise SandboxError(f"a command cannot be started: {error}") from None
        finally:
            os.close(status_write)
        self._running.add(process)
        out, err = Collector(), Collector()
        reading = asyncio.gather(_collect(process.stdout, out), _collect(process.stderr, err))
        ended = Ended.EXITED
        try:
            async with asyncio.timeout(limits.timeout_s):
                await asyncio.shield(reading)
                await process.wait()
        except TimeoutError:
            ended = Ended.TIMEOUT
        finally:
            try:
                await _stop(process, reading)
            finally:
                self._running.discard(process)
            trouble = await asyncio.to_thread(_read_all, status_read)
        if trouble:
            raise SandboxError(f"the sandbox cannot be set up: {trouble}")
        code = process.returncode if ended is Ended.EXITED else None
        if code is not None and code < 0:
            raise SandboxError(f"the command's keeper was killed by signal {-code}")
        return CommandResult(code, ended, out.finish(), err.finish(), round((time.monotonic() - began) * 1000))

    def _spec(self, command: Sequence[str], limits: Limits, status_fd: int) -> dict[str, object]:
        return {
            "command": list(command),
            "isolation": self._isolation,
            "workspace": str(self._workspace),
            "scratch": str(self._scratch),
            "root": self.root,
            "readonly": sorted({sys.prefix, sys.base_prefix}),
            "parent": os.getpid(),
            "status_fd": status_fd,
            "cpu_s": limits.cpu_s,
            "memory_mb": limits.memory_mb,
            "file_mb": limits.file_mb,
            "processes": limits.processes,
        }

    def _harness_spec(self, folder: Path, harness: Harness) -> dict[str, object]:
        return {
            "tests": str(folder / "tests"),
            "logs": str(folder / "logs"),
            "apart": harness.apart,
            "program": WORK.read_text(),
            "python": sys.executable,
        }

    # -- life ----------------------------------------------------------------------------------------------------------

    async def reset(self) -> None:
        """Empty the workspace for the next one. Raises SandboxError when it is broken."""
        await self._end_commands()
        if not self._workspace.is_dir() or not self._scratch.is_dir():
            raise SandboxError(f"{self._folder} is damaged")
        try:
            await asyncio.to_thread(_remove, self._workspace)
            self._workspace.mkdir()
        except OSError as error:
            raise SandboxError(f"{self._workspace} cannot be emptied: {error}") from None

    async def dispose(self) -> None:
        """Remove it."""
        await self._end_commands()
        await asyncio.to_thread(_remove, self._folder)

    async def _end_commands(self) -> None:
        """Stop what somebody left running; whoever waits for it gets its result."""
        for process in self._running:
            with suppress(ProcessLookupError):
                process.terminate()
        if self._running:
            with suppress(TimeoutError):
                async with asyncio.timeout(3 * STOP_S):
                    await asyncio.gather(*(process.wait() for process in self._running))


def _environment(env: Mapping[str, str], harness: Mapping[str, object] | None) -> dict[str, str]:
    """What a command sees: nothing of the runner's own environment, which holds its keys."""
    helper = [HELPER] if harness is not None and harness["apart"] else []
    path = os.pathsep.join((*helper, str(Path(sys.prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"))
    return {
        "PATH": path,
        "HOME": "/tmp",  # noqa: S108 - inside
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the Python inside is ours: its plugins are nobody's business there
        **env,
    }


async def _collect(stream: asyncio.StreamReader | None, into: Collector) -> None:
    assert stream is not None
    while chunk := await stream.read(CHUNK):
        into.add(chunk)


async def _stop(process: asyncio.subprocess.Process, reading: "asyncio.Future[tuple[None, None]]") -> None:
    """Be sure that it is over: asked first, so that the keeper can wait for the last one to be gone."""
    for stop in (process.terminate, process.kill):
        if process.returncode is None and not reading.done():
            with suppress(ProcessLookupError):
                stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await asyncio.shield(reading)
                await process.wait()
                return
    reading.cancel()
    raise SandboxError("a command could not be stopped")


def _read_all(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as source:
        return source.read(4096).decode(errors="replace")


def _file_at(place: Path, path: str) -> File | None:
    """What is there, if it is part of a workspace: no pipes, no links to elsewhere, no names that are not text."""
    try:
        path.encode()
        found = place.lstat()
        if stat.S_ISLNK(found.st_mode):
            target = str(place.readlink())
            return File(target.encode(), link=True) if stays_inside(path, target) else None
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > MAX_TOTAL:
            raise FileProblemError("too_large", f"{path}: over {MAX_TOTAL} bytes")
        return File(place.read_bytes(), executable=bool(found.st_mode & 0o100))
    except (OSError, UnicodeEncodeError):
        return None


def _lay_out(folder: Path, tests: Files) -> None:
    """Write the tests beside an empty place for reports."""
    _remove(folder)
    (folder / "logs").mkdir(parents=True)
    (folder / "tests").mkdir()
    for path, file in tests.items():
        place = folder / "tests" / checked(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            place.symlink_to(file.content.decode())
            continue
        place.write_bytes(file.content)
        place.chmod(0o755 if file.executable else 0o644)


def _reports(folder: Path) -> Files:
    """The plain files that a test run left, if they are few and small."""
    found: dict[str, File] = {}
    total = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            place = Path(parent, name)
            seen = place.lstat()
            total += seen.st_size
            if len(found) > MAX_REPORTS or total > MAX_REPORTS_BYTES:
                return {}
            if stat.S_ISREG(seen.st_mode):
                found[place.relative_to(folder).as_posix()] = File(place.read_bytes())
    return bounded(found)


def _remove(folder: Path) -> None:
    """Remove a folder, whatever permissions were set inside."""
    if folder.is_symlink():  # nobody is led elsewhere
        folder.unlink()
    if not folder.exists():
        return
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            place = Path(parent, name)
            if not place.is_symlink():
                place.chmod(0o700)
    shutil.rmtree(folder)
