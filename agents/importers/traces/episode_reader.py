"""Readers of whole episodes, guarded: a bad item, or a bad file, is one rejection with its position, and the rest goes on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from agents.importers.line_error import LineError
from agents.importers.traces.format import Bad, Episode, FileUse, Head, Item, Options, Part, Piece, Read, Reading
from agents.importers.traces.json_elements import Structure
from agents.importers.traces.transcript_writer import TranscriptWriter

_CHECKPOINT = "checkpoint.json"
"""In every directory that `braid export` wrote."""
_BESIDE = (_CHECKPOINT, "manifest.json", "croissant.json", "metadata.json", "README.md", "provenance/")
"""Written there beside the rows."""

_COLON, _COMMA, _OBJECT_END = b":,}"

Told = TypeVar("Told", bound=Episode | Bad | Piece)

_UNEXPECTED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
"""Raised by a look at a value of an unexpected shape: the value is rejected, not the import."""


def per_item(read_one: Callable[[Item, Options], Iterable[Episode | Bad | Piece]]) -> Read:
    """A reader that makes episodes of each item by itself."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        for item in items:
            yield from guarded_all([item], read_one(item, options))

    return read


def per_part(read_part: Callable[[Sequence[Item], Options], Iterable[Episode | Bad]]) -> Read:
    """A reader that needs all items of a part at once: a small job folder."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        part = list(items)
        if part:
            yield from guarded_all(part, read_part(part, options))

    return read


def guarded(item: Item, episodes: Iterable[Told]) -> Iterator[Told | Bad]:
    """Episodes of an item; an error on the way becomes the item's rejection."""
    return guarded_all([item], episodes)


def guarded_all(items: Sequence[Item], episodes: Iterable[Told]) -> Iterator[Told | Bad]:
    """Episodes of items that belong together; an error on the way becomes one rejection."""
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
    """A plan in which every fitting file is a part of its own."""
    return [Part(base_name(name), (FileUse(name),)) for name in data_files(names) if fits(name)]


def data_files(names: Sequence[str]) -> list[str]:
    """The files of a folder without those that `braid export` writes beside its rows."""
    homes = {name.removesuffix(_CHECKPOINT) for name in names if name.rpartition("/")[2] == _CHECKPOINT}
    beside = tuple(f"{home}{name}" for home in homes for name in _BESIDE)
    return [name for name in names if not beside or not name.startswith(beside)]


def base_name(name: str) -> str:
    """A file's name without its folders and extensions: the name of a run that has no other."""
    last = name.rsplit("/", 1)[-1]
    for extension in (".gz", ".zst", ".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".eval", ".pb"):
        last = last.removesuffix(extension)
    return last


def is_json(name: str) -> bool:
    """Whether a file's name says JSON, Parquet (whose rows are read as JSON), or nothing."""
    plain = name.removesuffix(".gz").removesuffix(".zst")
    return plain.endswith((".json", ".jsonl", ".ndjson", ".parquet")) or "." not in plain.rsplit("/", 1)[-1]


def first_value(head: bytes) -> bytes:
    """The beginning of the first JSON value of a head: what follows spaces and an opening bracket of an array."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n[")


def is_part_of_job(names: Sequence[str]) -> bool:
    """Whether files are those of a benchmark's job: sessions among them are logs of its trials."""
    return any(f"/{name}".endswith(("/result.json", "/results.json")) for name in names)


def members(head: bytes) -> dict[str, bytes]:
    """The members of the first JSON object of a head, each with the beginning of its value; empty where the first value is none."""
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
    """Whether a head has all of these keys, quoted as JSON keys."""
    return all(b'"%b"' % word in head for word in words)


def tell_unreadable(writer: TranscriptWriter, bad: Bad) -> None:
    """Note in its place something that cannot be read."""
    raw = bad.raw.decode(errors="replace") if isinstance(bad.raw, bytes) else bad.raw
    writer.note("unreadable", {"position": bad.position, "reason": bad.reason} | ({} if raw is None else {"raw": raw}))
