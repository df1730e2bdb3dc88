"""Readers of whole episodes, guarded: a bad item, or a bad file, is one rejection with its position, and the rest goes on."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from agents.importers.line_error import LineError
from agents.importers.traces.format import Bad, Episode, FileUse, Head, Item, Options, Part, Read, Reading
from agents.importers.traces.transcript_writer import TranscriptWriter

_UNEXPECTED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
"""Raised by a look at a value of a shape that nobody thought of: the value is rejected, not the import."""


def per_item(read_one: Callable[[Item, Options], Iterable[Episode | Bad]]) -> Read:
    """A reader that makes episodes of each item by itself."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        for item in items:
            yield from guarded_all([item], read_one(item, options))

    return read


def per_file(read_file: Callable[[Sequence[Item], Options], Iterable[Episode | Bad]]) -> Read:
    """A reader that makes episodes of all items of a file: a session in lines."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        for _, group in groupby(items, key=lambda item: item.file):
            session = list(group)
            yield from guarded_all(session, read_file(session, options))

    return read


def per_part(read_part: Callable[[Sequence[Item], Options], Iterable[Episode | Bad]]) -> Read:
    """A reader that needs all items of a part at once: a small job folder."""

    def read(items: Iterable[Item], options: Options) -> Reading:
        part = list(items)
        if part:
            yield from guarded_all(part, read_part(part, options))

    return read


def guarded(item: Item, episodes: Iterable[Episode | Bad]) -> Reading:
    """Episodes of an item; an error on the way becomes the item's rejection."""
    return guarded_all([item], episodes)


def guarded_all(items: Sequence[Item], episodes: Iterable[Episode | Bad]) -> Reading:
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
    return [Part(base_name(name), (FileUse(name),)) for name in names if fits(name)]


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


def says(head: bytes, *words: bytes) -> bool:
    """Whether a head has all of these keys, quoted as JSON keys."""
    return all(b'"%b"' % word in head for word in words)


def tell_unreadable(writer: TranscriptWriter, bad: Bad) -> None:
    """Note in its place something that cannot be read."""
    raw = bad.raw.decode(errors="replace") if isinstance(bad.raw, bytes) else bad.raw
    writer.note("unreadable", {"position": bad.position, "reason": bad.reason} | ({} if raw is None else {"raw": raw}))
