"""Files of other systems become lines: the shell around the formats of `agents/importers/formats`."""

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.importers.formats.registry import FORMATS
from agents.importers.formats.seed_shapes import SEED_SHAPES
from agents.importers.traces.format import Bad, Episode, Format, Item, Options, Part
from agents.importers.traces.reading import base_name
from agents.importers.traces.rollout_book import Grouping, RolloutBook
from agents.importers.traces.tally import Tally
from agents.redaction.redaction import redact
from schemas.errors import BraidError
from schemas.jsontext import compact
from streams.jobs.imports.spool_file import SpoolFile
from streams.jobs.imports.trace_files import TraceFiles
from streams.jobs.imports.trace_items import read_items
from streams.log.input_lines import BadLine, Rejected

AUTO = "auto"


class ImportTracesError(BraidError):
    """An import that cannot begin."""


@dataclass
class Imported:
    """What was read."""

    rollouts: int = 0
    branches: int = 0
    tally: Tally = field(default_factory=Tally)
    formats: dict[str, str] = field(default_factory=dict)
    """By path, the format that it was read as."""

    def plain(self, rejected: int) -> dict[str, Any]:
        """For `--json`."""
        counts = {"rollouts": self.rollouts, "branches": self.branches, **self.tally.plain()}
        return counts | {"rejected": rejected, "formats": self.formats}


class TraceImport:
    """One import: read the paths, then take the lines."""

    def __init__(self, options: Options, grouping: Grouping, rejected: Rejected, say: Callable[[float], None]) -> None:
        self._options = options
        self._grouping = grouping
        self._rejected = rejected
        self._say = say
        self._books: dict[str, RolloutBook] = {}
        self._spool = SpoolFile()
        self.found = Imported()

    def read(self, format_name: str, paths: Sequence[Path]) -> None:
        """Read all paths. Raises ImportTracesError before the first episode where a path is of no known format."""
        with ExitStack() as stack:
            sources = []
            for path in paths:
                files = TraceFiles(path)
                stack.callback(files.close)
                sources.append((files, chosen(format_name, files, self._options.shape)))
            total, done = sum(_size(files) for files, _ in sources) or 1, 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                self._say(min(done / total, 1.0))

            for files, format_ in sources:
                self.found.formats[str(files.path)] = format_.name
                self._read_path(files, format_, advance)
        for book in self._books.values():
            rollouts, branches = book.counts
            self.found.rollouts += rollouts
            self.found.branches += branches

    def lines(self) -> Iterator[bytes]:
        """The lines of everything that was read; nothing is left afterwards."""
        for book in self._books.values():
            yield from book.lines()
        self._spool.close()

    def _read_path(self, files: TraceFiles, format_: Format, advance: Callable[[int], None]) -> None:
        parts = format_.plan(files.names, files.head)
        if not parts:
            self._refuse(Bad(str(files.path), "", "", f"holds no file of the format {format_.name}"))
        book = self._books.get(format_.name)
        if book is None:
            book = self._books[format_.name] = RolloutBook(format_.name, self._grouping, self._spool)
        for part in parts:
            self._read_part(files, format_, part, book, advance)

    def _read_part(
        self, files: TraceFiles, format_: Format, part: Part, book: RolloutBook, advance: Callable[[int], None]
    ) -> None:
        run = part.run or base_name(files.path.resolve().name) or "run"

        def items() -> Iterator[Item]:
            for use in part.files:
                for found in read_items(files, use, run, advance):
                    if isinstance(found, Bad):
                        self._refuse(found)
                    else:
                        yield found

        for found in format_.read(items(), self._options):
            if isinstance(found, Bad):
                self._refuse(found)
                continue
            bad = book.add(found)
            if bad is not None:
                self._refuse(bad)
                continue
            self._note(found)

    def _note(self, episode: Episode) -> None:
        self.found.tally.add(episode)
        for bad in episode.unreadable:
            self._refuse(bad)

    def _refuse(self, bad: Bad) -> None:
        self._rejected.keep(described(bad))


def chosen(format_name: str, files: TraceFiles, shape: str = "real") -> Format:
    """The format of a path: the one that was named, or the only one that recognises it. Raises ImportTracesError."""
    formats = SEED_SHAPES if shape == "seed" else FORMATS
    if format_name != AUTO:
        found = formats.get(format_name)
        if found is None:
            said = f"no format {format_name}" + (" in the seed's shapes" if shape == "seed" else "")
            raise ImportTracesError(f"{said}; there are: auto, {', '.join(formats)}")
        return found
    fitting = [format_ for format_ in formats.values() if format_.recognise(files.names, files.head)]
    layouts = [format_ for format_ in fitting if format_.has_folders]
    if len(fitting) == 1 or len(layouts) == 1:
        return layouts[0] if layouts else fitting[0]
    if not fitting:
        raise ImportTracesError(f"{files.path}: of no known format; `braid import formats` lists them")
    names = ", ".join(each.name for each in fitting)
    raise ImportTracesError(f"{files.path}: may be {names}; say which: braid import {fitting[0].name} {files.path}")


def described(bad: Bad) -> BadLine:
    """A rejection as the sidecar keeps it: without secrets."""
    field_name, reason = redact(bad.field).text, redact(bad.reason).text
    entry: dict[str, Any] = {"file": bad.file, "position": bad.position, "field": field_name, "reason": reason}
    raw = bad.raw
    if isinstance(raw, bytes):
        try:
            raw = raw.decode()
        except UnicodeDecodeError:
            entry["base64"] = base64.b64encode(redact(raw.decode("latin-1")).text.encode("latin-1")).decode()
            raw = None
    if raw is not None:
        entry["text"] = redact(raw if isinstance(raw, str) else compact(raw)).text
    place = f"{bad.file}: {bad.position}" if bad.position else bad.file
    return BadLine(f"{place}: {field_name + ': ' if field_name else ''}{reason}", entry)


def _size(files: TraceFiles) -> int:
    return sum(files.size(name) for name in files.names)
