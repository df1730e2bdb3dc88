"""One file of rows while it is written, and the digest of a row. JSON lines are here; Parquet is in `parquet_file`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from agents.evidence.canonical import canonical_bytes
from agents.formats.shape import Column
from schemas.jsontext import compact
from streams.log.durable_files import open_output


class Writer(ABC):
    """One file while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0

    @abstractmethod
    def write(self, rows: Sequence[dict[str, Any]], weight: int) -> list[str]:
        """Add rows; returns the digest of each."""

    @abstractmethod
    def close(self) -> None:
        """Write the remaining rows."""

    def discard(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # on a full disk the last flush fails, too
            self.close()
        self.path.unlink(missing_ok=True)


class Lines(Writer):
    """JSON lines."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._out = open_output(path)

    def write(self, rows: Sequence[dict[str, Any]], weight: int) -> list[str]:
        """Add rows, one a line."""
        del weight
        lines = [compact(row).encode() for row in rows]
        self._out.writelines(line + b"\n" for line in lines)
        self.rows += len(rows)
        return [sha256(line).hexdigest() for line in lines]

    def close(self) -> None:
        """Write the remaining rows."""
        self._out.close()


def values_digest(row: Mapping[str, Any]) -> str:
    """The digest of the values of a row of columns: the same whether a null is written or left out."""
    return sha256(canonical_bytes(_known(row), big_integers="exact")).hexdigest()


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _known(each) for name, each in value.items() if each is not None}
    return [_known(each) for each in value] if isinstance(value, list) else value


def as_columns(row: dict[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
    """A row whose free-form values are JSON text."""
    return {
        name: compact(value) if columns[name] == "json" and value is not None else value for name, value in row.items()
    }
