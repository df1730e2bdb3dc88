"""The runner's side of commands: in a sandbox's holder, or each under a keeper of its own.

Either way a command is two streams, a way to stop it, and its exit code; `launch_adapter` and `confine_adapter` are the other
side.
"""

import asyncio
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from agents.fork.kernel_adapter import exit_code
from agents.fork.request_adapter import receive, send
from agents.fork.sandbox import SandboxError

CONFINE = Path(__file__).with_name("confine_adapter.py")

START_S = 20.0


class Command(Protocol):
    """A command that runs."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    async def code(self) -> int:
        """Wait for its end, and return its exit code. Raises SandboxError when it could not be started or is lost."""

    def stop(self) -> None:
        """Ask it to end; all processes that it started end, too."""

    def kill(self) -> None:
        """End it without asking, at the cost of the sandbox."""


# -- in a holder -----------------------------------------------------------------------------------------------------------


class Holder:
    """A process that holds a sandbox's namespaces and file systems; everything in them ends with it."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, folders: list[int]) -> None:
        self.process = process
        self.folders = folders
        """Descriptors: the workspace, and the place of tests and reports."""
        self._control = control

    @classmethod
    async def start(cls, spec: Mapping[str, Any]) -> "Holder":
        """Start one. Raises SandboxError."""
        starting = asyncio.ensure_future(cls._start(spec))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(SandboxError):
                await (await starting).end()
            raise

    @classmethod
    async def _start(cls, spec: Mapping[str, Any]) -> "Holder":
        control, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(CONFINE), "hold", str(theirs.fileno()), env={}, pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            control.close()
            raise SandboxError(f"a sandbox cannot be started: {error}") from None
        finally:
            theirs.close()
        control.settimeout(START_S)
        trouble = "its holder is gone"
        try:
            said, passed = await asyncio.to_thread(_first_message, control, dict(spec) | {"parent": os.getpid()})
            if len(passed) == 2:
                return cls(process, control, passed)
            trouble = said.decode()
        except (OSError, ValueError) as error:
            trouble = f"{trouble} ({error})"
        await cls(process, control, []).end()
        raise SandboxError(f"the sandbox cannot be set up: {trouble}")

    async def run(self, request: Mapping[str, Any]) -> "HeldCommand":
        """Start a command; not to be cancelled meanwhile. Raises SandboxError."""
        mine, theirs = socket.socketpair()
        out, err, null = os.pipe(), os.pipe(), os.open(os.devnull, os.O_RDWR)
        readers = await _reader(out[0]), await _reader(err[0])
        body = json.dumps(dict(request)).encode()
        try:
            socket.send_fds(self._control, [b"1"], [theirs.fileno()])
            socket.send_fds(mine, [struct.pack("I", len(body))], [null, out[1], err[1]])
        except OSError as error:
            mine.close()
            raise SandboxError(f"a command cannot be started: the sandbox's holder is gone ({error})") from None
        finally:
            theirs.close()
            for descriptor in (null, out[1], err[1]):
                os.close(descriptor)
        reader, writer = await asyncio.open_connection(sock=mine)
        writer.write(body)
        return HeldCommand(self, *readers, reader, writer)

    async def end(self) -> None:
        """End it, with everything in it."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self._control.close()
        for folder in self.folders:
            os.close(folder)
        self.folders = []


class HeldCommand:
    """A command in a holder's namespaces."""

    def __init__(
        self, holder: Holder, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self.stdout, self.stderr = stdout, stderr
        self._holder, self._reader, self._writer = holder, reader, writer

    async def code(self) -> int:
        """Wait for its end, and return its exit code. Raises SandboxError."""
        try:
            reply = (await self._reader.read())[4:].decode()
        except OSError:
            reply = ""
        finally:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        if not reply.isdigit():
            raise SandboxError(f"the sandbox cannot be set up: {reply or 'its holder was killed'}")
        return exit_code(int(reply))

    def stop(self) -> None:
        """Shut this side of the connection: the command's namespaces end."""
        with suppress(OSError):
            self._writer.write_eof()

    def kill(self) -> None:
        """Kill the holder."""
        with suppress(ProcessLookupError):
            self._holder.process.kill()


def _first_message(control: socket.socket, spec: dict[str, Any]) -> tuple[bytes, list[int]]:
    send(control, json.dumps(spec).encode())
    return receive(control)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    """A pipe's end as a stream."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0))
    return reader


# -- under a keeper --------------------------------------------------------------------------------------------------------


class KeptCommand:
    """A command with limits only, under a process that ends with it."""

    def __init__(self, process: asyncio.subprocess.Process, status: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdout, self.stderr = process.stdout, process.stderr
        self._process, self._status = process, status

    @classmethod
    async def start(cls, spec: Mapping[str, Any], env: Mapping[str, str]) -> "KeptCommand":
        """Start one. Raises SandboxError."""
        status, theirs = os.pipe()
        given = json.dumps(dict(spec) | {"parent": os.getpid(), "status_fd": theirs})
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(CONFINE), "keep", given, env=env, pass_fds=(theirs,),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(status)
            raise SandboxError(f"a command cannot be started: {error}") from None
        finally:
            os.close(theirs)
        return cls(process, status)

    async def code(self) -> int:
        """Wait for its end, and return its exit code. Raises SandboxError."""
        code = await self._process.wait()
        with os.fdopen(self._status, "rb") as source:
            trouble = source.read(4096).decode(errors="replace")
        if trouble:
            raise SandboxError(f"the sandbox cannot be set up: {trouble}")
        if code < 0:
            raise SandboxError(f"the command's keeper was killed by signal {-code}")
        return code

    def stop(self) -> None:
        """Ask the keeper, which waits for the last process to end."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the keeper."""
        with suppress(ProcessLookupError):
            self._process.kill()
