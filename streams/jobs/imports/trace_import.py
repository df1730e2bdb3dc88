"""Files of other systems become lines: the shell around the formats of `agents/importers/formats`."""

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.importers.formats.registry import FORMATS
from agents.importers.formats.seed_shapes import SEED_SHAPES
from agents.importers.traces.episode_reader import base_name, guarded
from agents.importers.traces.format import Bad, Episode, Format, Item, Options, Part, Piece, Scatter
from agents.importers.traces.json_elements import MAX_ELEMENT
from agents.importers.traces.rollout_book import Grouping, RolloutBook
from agents.importers.traces.tally import Tally
from agents.redaction.redaction import redact
from schemas.errors import BraidError
from schemas.jsontext import compact
from streams.jobs.imports.group_spool import GroupSpool
from streams.jobs.imports.spool_file import SpoolFile
from streams.jobs.imports.trace_files import TraceFiles
from streams.jobs.imports.trace_items import read_items
from streams.log.input_lines import BadLine, Rejected

AUTO = "auto"


class ImportTracesError(BraidError):
    """An import that cannot begin."""


@dataclass
class Imported:
    """The files that were read."""

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
        self._gathered: dict[str, tuple[Format, _Gathered]] = {}
        """By name, formats whose episodes are spread over all their paths."""
        self._spool = SpoolFile()
        self.found = Imported()

    def read(self, format_name: str, paths: Sequence[Path]) -> None:
        """Read all paths. Raises ImportTracesError before the first episode if a path has no known format."""
        with ExitStack() as stack:
            sources: list[tuple[TraceFiles, Format]] = []
            for path in paths:
                files = TraceFiles(path)
                stack.callback(files.close)
                format_ = chosen(format_name, files, self._options.shape)
                self.found.formats[str(path)] = format_.name
                beside = next((each for each, other in sources if other is format_ and each.is_file), None)
                if beside is not None and files.is_file:  # a session may be continued, or forked, in another file
                    beside.join(path)
                else:
                    sources.append((files, format_))
            total, done = sum(_size(files) for files, _ in sources) or 1, 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                self._say(min(done / total, 1.0))

            for files, format_ in sources:
                self._read_path(files, format_, advance)
            for format_, gathered in self._gathered.values():
                self._read_groups(format_, gathered)
        for book in self._books.values():
            rollouts, branches = book.counts
            self.found.rollouts += rollouts
            self.found.branches += branches

    def lines(self) -> Iterator[bytes]:
        """The lines of everything that was read; the import is empty afterwards."""
        for book in self._books.values():
            yield from book.lines()
        self.close()

    def close(self) -> None:
        """Discard everything, if not all lines were taken."""
        self._spool.close()

    def _read_path(self, files: TraceFiles, format_: Format, advance: Callable[[int], None]) -> None:
        parts = format_.plan(files.names, files.head)
        planned = {use.name for part in parts for use in part.files}
        if not parts and not files.is_file:
            self._refuse(Bad(str(files.path), "", "", f"holds no file of the format {format_.name}"))
        for name in files.names if files.is_file else ():
            if name not in planned:
                self._refuse(Bad(name, "", "", f"is no file of the format {format_.name}"))
        for part in parts:
            run = part.run or base_name(files.path.resolve().name) or "run"
            items = self._items(files, format_, part, run, advance)
            if format_.scatter is None:
                later = GroupSpool()
                self._take(format_, items, later, run)
                self._take(format_, _groups(later, part.files[0].name, sorted_by_name=False))
            else:
                self._gather(format_, format_.scatter, items, part)

    def _items(
        self, files: TraceFiles, format_: Format, part: Part, run: str, advance: Callable[[int], None]
    ) -> Iterator[Item]:
        for use in part.files:
            for found in read_items(files, use, run, advance):
                if isinstance(found, Item):
                    yield found
                    continue
                self._refuse(found)
                if format_.hands_bad:
                    yield Item(found.file, found.position, found, run)

    def _take(
        self, format_: Format, items: Iterator[Item | Bad], later: GroupSpool | None = None, run: str = ""
    ) -> None:
        """Take the episodes of some items. A piece waits for the rest of its group."""
        book = self._books.get(format_.name)
        if book is None:
            book = self._books[format_.name] = RolloutBook(format_.name, self._grouping, self._spool)
        for found in format_.read(self._good(items), self._options):
            if isinstance(found, Piece):
                assert later is not None, "a piece of a second group belongs to no third one"
                later.add(found.group, [run, found.value])
                continue
            bad = found if isinstance(found, Bad) else book.add(found)
            if bad is not None:
                self._refuse(bad)
            elif isinstance(found, Episode):
                self._note(found)

    def _good(self, items: Iterator[Item | Bad]) -> Iterator[Item]:
        for item in items:
            if isinstance(item, Bad):
                self._refuse(item)
            else:
                yield item

    def _gather(self, format_: Format, scatter: Scatter, items: Iterator[Item], part: Part) -> None:
        """Spread the pieces of some items by group."""
        _, gathered = self._gathered.setdefault(format_.name, (format_, _Gathered()))
        gathered.files.update(use.name for use in part.files)
        for item in items:
            for found in guarded(item, scatter(item, self._options)):
                if isinstance(found, Bad):
                    self._refuse(found)
                elif isinstance(found, Piece):
                    gathered.spool.add(found.group, [part.run, found.value])

    def _read_groups(self, format_: Format, gathered: "_Gathered") -> None:
        names = sorted(gathered.files)
        label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        later = GroupSpool()
        self._take(format_, _groups(gathered.spool, label, sorted_by_name=True), later)
        self._take(format_, _groups(later, label, sorted_by_name=True))

    def _note(self, episode: Episode) -> None:
        self.found.tally.add(episode)
        for bad in episode.unreadable:
            self._refuse(bad)

    def _refuse(self, bad: Bad) -> None:
        self._rejected.keep(described(bad))


@dataclass
class _Gathered:
    """Pieces of all paths of a format."""

    spool: GroupSpool = field(default_factory=GroupSpool)
    files: set[str] = field(default_factory=set)


def _groups(spool: GroupSpool, label: str, *, sorted_by_name: bool) -> Iterator[Item | Bad]:
    """Groups as items. The position of a group is no longer a file and line, because its pieces may be anywhere."""
    for name, pieces in spool.groups(sorted_by_name=sorted_by_name):
        if pieces is None:
            yield Bad(label, name, "", f"longer than {MAX_ELEMENT} bytes")
        else:
            run = min(run for run, _ in pieces)
            yield Item(label, name, [value for _, value in pieces], run, is_group=True)


def chosen(format_name: str, files: TraceFiles, shape: str = "real") -> Format:
    """The format of a path: the given one, or the only one that recognises it. Raises ImportTracesError."""
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
        raise ImportTracesError(
            f"{files.path}: of no known format by its first bytes; where it is one of these, say which "
            f"(`braid import formats` describes them): {', '.join(formats)}"
        )
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
