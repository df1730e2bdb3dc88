"""Files of lines: read one by one, separated by "\n" only, with the position of every bad one.

A bad line is stored in a sidecar without its secrets, with file, line, field and reason; reading goes on.
"""

import base64
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from agents.evidence.structure import printable
from agents.facts.fact import Fact
from agents.importers.line_error import LineError
from agents.redaction.redaction import redact
from agents.verdicts.meaning import Doubt, doubt
from schemas.errors import BraidError
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.log.durable_files import open_output
from streams.log.topics import SLICE_LIMIT

LINE_LIMIT = 4 * SLICE_LIMIT
"""Bytes of one line: a line may contain a whole branch."""

SIDECAR = "rejected-input.jsonl"

PIECE = 256 * 1024
"""Bytes that are read and digested at once."""


class InputError(BraidError):
    """A file that cannot be read at all."""


class Line(NamedTuple):
    """One line of a file."""

    source: str
    number: int
    """Counted from 1."""
    text: bytes
    """Without its end; truncated if it was too long."""
    too_long: bool = False
    at: int = 0
    """The position among all lines of all files."""

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.source}:{self.number}"


def require_inputs(files: Sequence[Path]) -> None:
    """Raises InputError for a missing file, before results of an earlier run are replaced."""
    for path in files:
        if str(path) != "-" and not path.exists():
            raise InputError(f"{path}: No such file or directory; is the path right?")


class Digested(RawIOBase):
    """A source of bytes that computes the SHA-256 of everything read: in blocks, so that lines cost nothing more."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._digest = sha256()
        self.count = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read some bytes; none at the end."""
        count = int(self._source.readinto1(buffer))
        self._digest.update(memoryview(buffer)[:count])
        self.count += count
        return count

    def plain(self, name: str) -> dict[str, Any]:
        """The file as a manifest lists it."""
        return {"name": printable(name), "sha256": self._digest.hexdigest(), "bytes": self.count}


def read_lines(files: Sequence[Path], read: list[dict[str, Any]] | None = None) -> Iterator[Line]:
    """All lines of all files that are not blank; `-` is standard input. Raises InputError for a file that cannot be
    opened.

    The name, digest and size of each file are added to `read`.
    """
    for path in files:
        if str(path) == "-":
            yield from _digested(sys.stdin.buffer, "<stdin>", read)
            continue
        try:
            with path.open("rb") as source:
                yield from _digested(source, str(path), read)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}; is the path right?") from error


def _digested(source: BinaryIO, name: str, read: list[dict[str, Any]] | None) -> Iterator[Line]:
    if read is None:
        yield from _lines(source, name)
        return
    digested = Digested(source)
    yield from _lines(BufferedReader(digested, PIECE), name)
    read.append(digested.plain(name))


def _lines(source: BinaryIO, name: str) -> Iterator[Line]:
    number = 0
    while text := source.readline(LINE_LIMIT + 1):
        number += 1
        too_long = len(text) > LINE_LIMIT and not text.endswith(b"\n")
        if too_long:
            while (rest := source.readline(LINE_LIMIT)) and not rest.endswith(b"\n"):
                pass
        stripped = text.removesuffix(b"\n").removesuffix(b"\r")
        if stripped.strip():
            yield Line(name, number, stripped, too_long)


class Rejected:
    """The sidecar of bad lines, opened when there is one."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.count = 0
        self.first: list[str] = []
        """The first few, for people."""
        self._file: BinaryIO | None = None

    def add(self, line: Line, error: LineError) -> None:
        """Keep a bad line."""
        self.keep(bad_line(line, error))

    def keep(self, bad: "BadLine") -> None:
        """Keep a bad line that is described already."""
        self.count += 1
        if len(self.first) < 5:
            self.first.append(bad.said)
        if self.path is None:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_output(self.path)
        self._file.write(orjson.dumps(bad.entry) + b"\n")

    def close(self) -> None:
        """Finish the file; one from an earlier run is removed if there are no bad lines."""
        if self._file is not None:
            self._file.close()
        elif self.path is not None:
            self.path.unlink(missing_ok=True)


class BadLine(NamedTuple):
    """A bad line without its secrets."""

    said: str
    """Place and reason, for people."""
    entry: dict[str, Any]
    """The entry in the sidecar."""


def bad_line(line: Line, error: LineError) -> BadLine:
    """Describe a bad line, redacted as everything that is shown or kept; so is the reason, which may quote it."""
    field, reason = redact(error.field).text, redact(error.reason).text
    entry = {"file": line.source, "line": line.number, "field": field, "reason": reason}
    try:
        entry["text"] = redact(line.text.decode()).text
    except UnicodeDecodeError:
        entry["base64"] = base64.b64encode(_redacted_bytes(line.text)).decode()
    return BadLine(f"{line.place}: {redact(str(error)).text}", entry)


class Doubted:
    """Verdicts of lines that have no effect: how many, and the position of the first one."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def note(self, line: Line, facts: Iterable[Fact]) -> None:
        """Count the facts of a line."""
        for fact in facts:
            found = fact_doubt(fact)
            if found is not None:
                self.count += 1
                self.first = self.first or f"{line.place}: {found.field}: {found.reason}"


def fact_doubt(fact: Fact) -> Doubt | None:
    """Why a verdict will have no effect; None for every other fact."""
    return doubt(fact) if isinstance(fact, BuildVerdict | VisualVerdict | CheckVerdict) else None


def _redacted_bytes(text: bytes) -> bytes:
    """A line that is not UTF-8, with its text redacted: as UTF-8 with odd bytes in it, then as Latin-1.

    Both preserve every byte that is not part of a secret.
    """
    odd = redact(text.decode(errors="surrogateescape")).text.encode(errors="surrogateescape")
    return redact(odd.decode("latin-1")).text.encode("latin-1")


def check_length(line: Line) -> None:
    """Refuse a line over the limit. Raises LineError."""
    if line.too_long:
        raise LineError("", f"the line is longer than {LINE_LIMIT} bytes")
