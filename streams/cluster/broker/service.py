"""The common part of Kafka and the registry: a folder, ports, a command, and a way to ask whether they answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from streams.cluster.broker.artifacts import Artifact
from streams.cluster.broker.java import Java
from streams.cluster.broker.ports import Ports

# A log above this is set aside at the next start; the one before it is dropped.
LOG_BYTES = 16 * 1024 * 1024


class Home(NamedTuple):
    """The folder of one service inside a state directory."""

    folder: Path

    @property
    def data(self) -> Path:
        """The data of the service: survives stopping, goes with a wipe."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """Everything the service prints."""
        return self.folder / f"{self.folder.name}.log"

    @property
    def pid_file(self) -> Path:
        """The process that was started last."""
        return self.folder / "process.json"

    @property
    def ports_file(self) -> Path:
        """The ports that were chosen."""
        return self.folder / "ports.json"

    def tidy_log(self) -> None:
        """Set a log that has grown large aside."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def last_lines(self, count: int) -> str:
        """The end of the log, for an error message."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 64 * 1024))
                lines = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-count:])


class Service(Protocol):
    """One program that the local broker consists of. It has no state: that is in its home."""

    @property
    def name(self) -> str:
        """Its name, which is also its folder's."""

    @property
    def artifact(self) -> Artifact:
        """The jars that it needs."""

    @property
    def listeners(self) -> Sequence[str]:
        """The names of its ports; clients use the first."""

    def address(self, port: int) -> str:
        """The address for its clients."""

    def command(self, home: Home, ports: Ports, java: Java, jars: Path) -> list[str]:
        """Write its settings, prepare its data if needed, and return the command that runs it (inside `home.folder`)."""

    def answers(self, port: int) -> bool:
        """Whether it is ready for clients now."""
