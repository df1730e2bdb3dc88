"""The items of a file, one in memory at a time, each with its position."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from agents.importers.traces.format import Bad, FileUse, Item
from agents.importers.traces.json_elements import MAX_ELEMENT, UNREAD, Element, Rest, elements
from schemas.jsontext import parse_unique, without_constants
from streams.jobs.imports.eval_archive import MAGIC, ArchiveError, EvalArchive, Member, opened_archive
from streams.jobs.imports.trace_files import UNREADABLE, TraceFiles

CHUNK = 1024 * 1024

MAX_KEPT = 4 * 1024 * 1024
"""Bytes of something bad that the sidecar keeps."""

Advance = Callable[[int], None]
"""Called with bytes that were read."""


def read_items(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    """The items of a file as its format wants them. A truncated file gives the items before the end, and a rejection."""
    try:
        yield from _SHAPES[use.shape](files, use, run, advance)
    except UNREADABLE as error:
        yield Bad(use.name, "", "", f"cannot be read to its end: {error}")


def _json(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    if files.is_parquet(use.name):
        yield from _parquet(files, use, run, advance)
        return
    streamed = frozenset(use.streamed)
    if not streamed and (use.comments or _has_lines(use.name, files.head(use.name))):
        with files.opened(use.name) as source:
            yield from _lines(source, use, run, advance)
        return
    if streamed:  # the rest comes first, wherever it is in the file
        with files.opened(use.name) as source:
            for found in elements(_chunks(source, lambda _count: None), streamed):
                if isinstance(found, Rest):
                    yield _parsed(use, "", found.text, run)
                    break
    with files.opened(use.name) as source:
        for found in elements(_chunks(source, advance), streamed):
            if isinstance(found, Element):
                yield _element(use, found, run)


def _has_lines(name: str, head: bytes) -> bool:
    """Whether a file is JSON lines: by its name, or because its first line is a whole value and another one follows."""
    if name.removesuffix(".gz").removesuffix(".zst").endswith((".jsonl", ".ndjson")):
        return True
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if not first.startswith(b"{") or not rest.lstrip().startswith(b"{"):
        return False
    try:
        parse_unique(first.strip())
    except ValueError:
        return False
    return True


def _lines(source: BinaryIO, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    number = 0
    while text := source.readline(MAX_ELEMENT + 1):
        number += 1
        advance(len(text))
        position = f"line {number}"
        if len(text) > MAX_ELEMENT and not text.endswith(b"\n"):
            while (more := source.readline(CHUNK)) and not more.endswith(b"\n"):
                advance(len(more))
            yield _too_long(use.name, position)
            continue
        stripped = text.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else text.strip()
        if stripped and not (use.comments and stripped.startswith(b"#")):
            yield _parsed(use, position, stripped, run)


def _chunks(source: BinaryIO, advance: Advance) -> Iterator[bytes]:
    while chunk := source.read(CHUNK):
        advance(len(chunk))
        yield chunk


def _element(use: FileUse, element: Element, run: str) -> Item | Bad:
    if element.too_long:
        return _too_long(use.name, element.position)
    if element.value is not UNREAD:
        return Item(use.name, element.position, element.value, run)
    return _parsed(use, element.position, element.text, run)


def _parsed(use: FileUse, position: str, text: bytes, run: str) -> Item | Bad:
    try:
        return Item(use.name, position, _parse(text, constants=use.constants), run)
    except ValueError as error:
        return Bad(use.name, position, "", f"not JSON: {error}", text[:MAX_KEPT])


def _parse(text: bytes, *, constants: bool) -> Any:
    try:
        return parse_unique(text)
    except ValueError:
        plain = without_constants(text) if constants else text
        if plain == text:
            raise
    return parse_unique(plain)


def _too_long(name: str, position: str) -> Bad:
    return Bad(name, position, "", f"longer than {MAX_ELEMENT} bytes")


def _parquet(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    from streams.jobs.imports.parquet_rows import BadParquetError, parquet_rows

    number = 0
    with files.opened(use.name) as source:
        try:
            for row in parquet_rows(source):
                yield Item(use.name, f"row {number}", row, run)
                number += 1
        except BadParquetError as error:
            yield Bad(use.name, f"row {number}", "", f"not Parquet: {error}")
    advance(files.size(use.name))


def _csv(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    csv.field_size_limit(MAX_ELEMENT)
    with files.opened(use.name) as source:
        text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="", errors="surrogateescape")
        rows, last = csv.DictReader(text, restkey="", strict=True), -1
        while rows.reader.line_num > last:  # each row takes a line at least, a bad one as well
            last = rows.reader.line_num
            try:
                row = next(rows)
                _encode(row)
            except StopIteration:
                break
            except (csv.Error, UnicodeEncodeError) as error:
                reason = "not UTF-8" if isinstance(error, UnicodeEncodeError) else f"not CSV: {error}"
                yield Bad(use.name, f"line {rows.reader.line_num}", "", reason)
            else:
                yield Item(use.name, f"line {rows.reader.line_num}", row, run)
    advance(files.size(use.name))


def _encode(row: Mapping[str, str | list[str] | None]) -> None:
    """Raise for bytes that were not UTF-8. Raises UnicodeEncodeError."""
    for name, value in row.items():
        for text in (name, *(value if isinstance(value, list) else [value or ""])):
            text.encode()


def _text(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    with files.opened(use.name) as source:
        raw = source.read(MAX_ELEMENT + 1)
    advance(len(raw))
    if len(raw) > MAX_ELEMENT:
        yield _too_long(use.name, "")
        return
    try:
        yield Item(use.name, "", raw.decode(), run)
    except UnicodeDecodeError as error:
        yield Bad(use.name, "", "", f"not UTF-8 at byte {error.start}", raw[:MAX_KEPT])


def _eval(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    """A log of Inspect: its header, then its samples, one in memory at a time. JSON is read as JSON."""
    with files.opened(use.name) as source:
        packed = source.read(len(MAGIC)) == MAGIC
    if not packed:
        yield from _json(files, use, run, advance)
        return
    with files.opened(use.name) as source, opened_archive(source) as archive:
        for member in archive.members():
            yield _member(archive, member, use, run)
            advance(member.packed)


def _member(archive: EvalArchive, member: Member, use: FileUse, run: str) -> Item | Bad:
    try:
        text = archive.read(member.name, MAX_ELEMENT + 1)
    except ArchiveError as error:
        return Bad(use.name, member.name, "", str(error))
    if len(text) > MAX_ELEMENT:
        return _too_long(use.name, member.name)
    return _parsed(use, "" if member.is_header else member.name, text, run)


def _otlp(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    """Export requests of OTLP: JSON lines, JSON, or protobuf bodies."""
    head = files.head(use.name)
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        yield from _bodies(files, use, run, advance)
    elif _has_lines(use.name, head) or head.lstrip().startswith(b"["):
        yield from _json(files, use, run, advance)
    else:  # one request, which may be of any size
        yield from _one_request(files, use, run, advance)


def _one_request(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    members = frozenset({"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"})
    with files.opened(use.name) as source:
        for found in elements(_chunks(source, advance), members):
            if not isinstance(found, Element):
                continue
            item = _element(use, found, run)
            yield item._replace(value={found.key: [item.value]}) if isinstance(item, Item) and found.key else item


def _bodies(files: TraceFiles, use: FileUse, run: str, advance: Advance) -> Iterator[Item | Bad]:
    """A body, or several with their lengths before them, as collectors write them to a file."""
    with files.opened(use.name) as source:
        first = source.read(5)
        if first[:1] == b"\n" or len(first) < 5:
            raw = first + source.read(MAX_ELEMENT)
            advance(len(raw))
            yield Item(use.name, "", raw, run) if len(raw) <= MAX_ELEMENT else _too_long(use.name, "")
            return
        head, number = first[:4], 0
        begun = first[4:]
        while len(head) == 4:
            length = int.from_bytes(head, "big")
            body = begun + source.read(min(length, MAX_ELEMENT) - len(begun))
            advance(len(body) + 4)
            if len(body) < length:
                yield Bad(
                    use.name,
                    f"[{number}]",
                    "",
                    f"expected a body of {length} bytes, found {len(body)}",
                    body[:MAX_KEPT],
                )
                return
            yield Item(use.name, f"[{number}]", body, run)
            head, begun, number = source.read(4), b"", number + 1


def _count(files: TraceFiles, use: FileUse, run: str, _advance: Advance) -> Iterator[Item | Bad]:
    """How many lines with something in them a file has."""
    with files.opened(use.name) as source:
        lines, filled = 0, False
        while text := source.readline(CHUNK):
            filled |= not text.isspace()
            if text.endswith(b"\n"):
                lines, filled = lines + filled, False
    yield Item(use.name, "count", lines + filled, run)


_SHAPES = {"json": _json, "csv": _csv, "text": _text, "eval": _eval, "otlp": _otlp, "count": _count}
