"""Guarded readers of episodes: a bad item or file becomes one rejection with its position, and the others are still
read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from agents.importers.line_error import LineError
from agents.importers.traces.format import Bad, Episode, FileUse, Head, Item, Options, Part, Piece, Read, Reading
from agents.importers.traces.json_elements import Structure
from agents.importers.traces.transcript_writer import TranscriptWriter

_CHECKPOINT = "checkpoint.json"
"""A file in every directory that `braid export` wrote."""
_BESIDE = (_CHECKPOINT, "manifest.json", "croissant.json", "metadata.json", "README.md", "provenance/")
"""Files that `braid export` writes in addition to the rows."""

_COLON, _COMMA, _OBJECT_END = b":,}"

Told = TypeVar("Told", bound=Episode | Bad | Piece)

_UNEXPECTED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
"""Errors from reading a value of an unexpected shape. The value is rejected; the import continues."""


def per_item(read_one: Callable[[Item, Options], Iterable[Episode | Bad | Piece]]) -> Read:
    """Return a reader that makes episodes from each item separately."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        for item in items:
            yield from guarded_all([item], read_one(item, options))

    return read


def per_part(read_part: Callable[[Sequence[Item], Options], Iterable[Episode | Bad]]) -> Read:
    """Return a reader that needs all items of a part at once, such as a small job folder."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        part = list(items)
        if part:
            yield from guarded_all(part, read_part(part, options))

    return read


def guarded(item: Item, episodes: Iterable[Told]) -> Iterator[Told | Bad]:
    """Yield the episodes of an item. An exception becomes the item's rejection."""
    return guarded_all([item], episodes)


def guarded_all(items: Sequence[Item], episodes: Iterable[Told]) -> Iterator[Told | Bad]:
    """Yield the episodes of related items. An exception becomes one rejection."""
    try:
        yield from episodes
    except LineError as error:
        yield _bad(items, error.field, error.reason)
    except _UNEXPECTED as error:
        yield _bad(items, "", f"not of this format: {type(error).__name__}: {error}")


def _bad(items: Sequence[Item], field: str, reason: str) -> Bad:
    first = items[0]
    alone = len(items) == 1
    return Bad(first.file, first.position if alone else "", field, reason, first.value if alone else None)


def each_alone(names: Sequence[str], _head: Head, *, fits: Callable[[str], bool]) -> list[Part]:
    """Plan a separate part for every fitting file."""
    return [Part(base_name(name), (FileUse(name),)) for name in data_files(names) if fits(name)]


def data_files(names: Sequence[str]) -> list[str]:
    """Return the files of a folder without those that `braid export` writes in addition to its rows."""
    homes = {name.removesuffix(_CHECKPOINT) for name in names if name.rpartition("/")[2] == _CHECKPOINT}
    beside = tuple(f"{home}{name}" for home in homes for name in _BESIDE)
    return [name for name in names if not beside or not name.startswith(beside)]


def base_name(name: str) -> str:
    """Return a file's name without folders and extensions: it names a run that has no other name."""
    last = name.rsplit("/", 1)[-1]
    for extension in (".gz", ".zst", ".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".eval", ".pb"):
        last = last.removesuffix(extension)
    return last


def is_json(name: str) -> bool:
    """Return whether a file's extension is JSON, Parquet (whose rows are read as JSON), or missing."""
    plain = name.removesuffix(".gz").removesuffix(".zst")
    return plain.endswith((".json", ".jsonl", ".ndjson", ".parquet")) or "." not in plain.rsplit("/", 1)[-1]


def first_value(head: bytes) -> bytes:
    """Return the head from its first JSON value on, without spaces and an array's opening bracket."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n[")


def is_part_of_job(names: Sequence[str]) -> bool:
    """Return whether files belong to a benchmark's job. Sessions among them are logs of its trials."""
    return any(f"/{name}".endswith(("/result.json", "/results.json")) for name in names)


def members(head: bytes) -> dict[str, bytes]:
    """Return the members of a head's first JSON object, each with the start of its value.

    Empty if the first value is not an object.
    """
    text = first_value(head)
    found: dict[str, bytes] = {}
    if not text.startswith(b"{"):
        return found
    start, colon = 1, 0
    for place, code, depth in Structure().marks(text):
        if depth == 1 and code == _COLON and not colon:
            colon = place
        elif depth == 1 and code in (_COMMA, _OBJECT_END):
            _note(found, text, start, colon, place)
            start, colon = place + 1, 0
            if code == _OBJECT_END:
                return found
    _note(found, text, start, colon, len(text))
    return found


def _note(found: dict[str, bytes], text: bytes, start: int, colon: int, end: int) -> None:
    if colon:
        name = text[start:colon].strip(b' \t\r\n"').decode(errors="replace")
        found.setdefault(name, text[colon + 1 : end].strip(b" \t\r\n"))


def says(head: bytes, *words: bytes) -> bool:
    """Return whether a head contains all of these keys, quoted as in JSON."""
    return all(b'"%b"' % word in head for word in words)


def tell_unreadable(writer: TranscriptWriter, bad: Bad) -> None:
    """Write an `unreadable` event in place of a value that cannot be read."""
    raw = bad.raw.decode(errors="replace") if isinstance(bad.raw, bytes) else bad.raw
    writer.note("unreadable", {"position": bad.position, "reason": bad.reason} | ({} if raw is None else {"raw": raw}))
