"""A sandbox: a place of its own with files and commands, that can be emptied and thrown away.

A command that runs inside has an exit code, zero or not: that is a result. `SandboxError` means that the sandbox itself
is broken; the pool then replaces it.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from agents.workspace.files import File, Files
from schemas.errors import BraidError

MAX_OUTPUT = 128 * 1024
"""Bytes kept of each output stream: half from its beginning, half from its end. A slice of events takes 1 MiB."""

TESTS, LOGS = "/tests", "/logs/verifier"
"""The folder of the tests, and the folder for their reports, for commands with a harness. `$TEST_DIR` and `$LOGS_DIR`
are always set, because some sandboxes put them elsewhere.
"""

MAX_REPORTS = 100
MAX_REPORTS_BYTES = 32 * 1024 * 1024

NO_ENV: Mapping[str, str] = {}


class SandboxError(BraidError):
    """A sandbox cannot be made, or is broken. A command that fails inside never raises this: it has an exit code."""


class ApartError(SandboxError):
    """A sandbox that works, but cannot separate the work from its tests; the message has the remedy."""


class Ended(StrEnum):
    """Why a command is over."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    """It was stopped, with everything that it had started."""


class Output(NamedTuple):
    """An output stream."""

    text: str
    """The whole text, or both ends with a note of the size left out."""
    n_bytes: int
    """Bytes of the whole."""
    digest: str
    """SHA-256 of all of it."""


class Harness(NamedTuple):
    """A task's tests, for a command that tests the workspace. Tests and reports lie outside of the workspace."""

    tests: Files
    """Seen at `TESTS`, read-only."""
    apart: bool
    """The command cannot see the workspace. Its program `work` (`work [--fd N]... COMMAND...`) runs commands on it, which see
    neither the tests nor the command nor its reports. Else all is in one view, and code under test can reach all of it."""


class CommandResult(NamedTuple):
    """How a command went."""

    exit_code: int | None
    """128 + the signal's number if a signal killed it; None if it was stopped for exceeding its time."""
    ended: Ended
    stdout: Output
    stderr: Output
    wall_ms: int
    reports: Files = MappingProxyType({})
    """Files in `LOGS` at the end; empty without a harness, and if there are too many or too large ones."""


def bounded(reports: Files) -> Files:
    """The plain files among reports; empty if there are too many or too large ones."""
    plain = {path: file for path, file in reports.items() if not file.link}
    fits = len(plain) <= MAX_REPORTS and sum(len(file.content) for file in plain.values()) <= MAX_REPORTS_BYTES
    return plain if fits else {}


class Limits(NamedTuple):
    """The limits of a command."""

    timeout_s: float = 120.0
    cpu_s: int = 120
    """Of each process."""
    memory_mb: int = 2048
    """Of each process."""
    file_mb: int = 256
    """Of each file."""
    processes: int = 256


class Sandbox(Protocol):
    """A place for one branch at a time."""

    @property
    def root(self) -> str:
        """The workspace's path, as commands see it."""

    async def read(self, path: str) -> bytes:
        """A file's content. Raises FileProblemError."""

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Create or replace a file, with its folders. Raises FileProblemError."""

    async def put(self, files: Files) -> None:
        """Write many files."""

    async def files(self, under: str = ".") -> dict[str, File]:
        """All files below a folder, by their path in the workspace. Raises FileProblemError."""

    async def everything(self, wanted: Callable[[str], bool]) -> dict[str, File | None]:
        """By path, every wanted name but folders, including caches; None for anything but a plain file or an inner
        link. May change permissions. Raises FileProblemError if that is too much.
        """

    async def run(
        self, command: Sequence[str], limits: Limits, env: Mapping[str, str] = NO_ENV, harness: Harness | None = None
    ) -> CommandResult:
        """Run a command in the workspace, or in `TESTS` when it runs apart; all processes that it started have ended
        when this returns.
        """

    async def reset(self) -> None:
        """Empty the workspace for the next one. Raises SandboxError when it is broken."""

    async def dispose(self) -> None:
        """Throw it away. Safe to call twice, and for a broken one."""
