"""Records to verify, in whatever file they lie: JSON lines, a JSON text, the Avro containers of an embedded log.

Everything is read record by record, with its position for people. A record that cannot be read is reported at its
position, and reading goes on.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import fastavro
from fastavro import schemaless_writer

from agents.evidence.canonical import CanonicalError, parse_evidence
from agents.evidence.verification import Evidence, evidence_in, read_record
from schemas.base import Record
from schemas.versions import committed
from streams.log.file_writer import SCHEMA

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of one line: more than the largest record has as JSON."""

WHOLE_LIMIT = 64 * 1024 * 1024
"""Bytes of a JSON file that is not lines: only such a file is read at once."""

CHANGED = "changed: its digest is not the one that was signed"

Read = Callable[[int], None]
"""Called with the number of bytes that were read."""


class Text(NamedTuple):
    """One line."""

    position: str
    text: bytes


class Entry(NamedTuple):
    """One record of a log, or the reason why it cannot be read."""

    position: str
    key: bytes | None
    value: bytes | None
    problem: str = ""


def lines_of(source: BinaryIO, name: str, read: Read) -> Iterator[Text]:
    """The lines that are not blank."""
    number = 0
    while text := source.readline(LINE_LIMIT):
        number += 1
        read(len(text))
        line = text.removesuffix(b"\n").removesuffix(b"\r")
        if line.strip():
            yield Text(f"{name}:{number}", line)


def evidence_of(path: Path, read: Read) -> Iterator[Evidence]:
    """The records of a JSON file: one a line, or one record or an array as the whole file."""
    whole = _whole(path)
    if whole is not None:
        read(path.stat().st_size)
        yield from whole
        return
    with path.open("rb") as source:
        for position, text in lines_of(source, str(path), read):
            yield read_record(text, position)


def _whole(path: Path) -> list[Evidence] | None:
    """The records of a file that is one JSON text; None when its lines are to be read one by one."""
    with path.open("rb") as source:
        first = next((line for line in iter(lambda: source.readline(LINE_LIMIT), b"") if line.strip()), b"").strip()
    array, named = first.startswith(b"["), path.suffix == ".json"
    if not (array or named) or path.stat().st_size > WHOLE_LIMIT:
        return None
    if not array and read_record(first, "").record is not None and path.read_bytes().strip() != first:
        return None  # the first line is a record by itself, and there are more
    try:
        value = parse_evidence(path.read_bytes())
    except CanonicalError as error:
        # An array that does not parse may be lines with a damaged first one; a .json file is always read as JSON.
        return [Evidence(str(path), None, str(error))] if named else None
    if isinstance(value, list):
        return [evidence_in(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return [evidence_in(value, str(path))]


def stored_in(path: Path, read: Read) -> Iterator[Entry]:
    """The records of one file of an embedded log; if it is damaged, the last entry has the reason."""
    offset, before = -1, 0
    with path.open("rb") as source:
        try:
            reader: Any = fastavro.reader(source)
            name = reader.writer_schema.get("name")
            if name != SCHEMA["name"]:
                yield Entry(f"{path}", None, None, f"no file of an embedded log: it holds {name}")
                return
            for row in reader:
                offset = row["offset"]
                read(source.tell() - before)
                before = source.tell()
                yield Entry(f"{path}@{offset}", row["key"], row["value"])
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever foreign bytes make it trip over
            yield Entry(
                f"{path}@{offset + 1}", None, None, f"the file is damaged here: {type(error).__name__}: {error}"
            )


def differs_in_json(record: Record) -> Callable[[str], str]:
    """Compare a row that is JSON: by the Avro body of its record, in the schema version that was current when it was made."""

    def differs(digest: str) -> str:
        plain = record.plain()
        for version in reversed(committed()[type(record).__name__]):
            body = BytesIO()
            schemaless_writer(body, version.parsed, plain, disable_tuple_notation=True)
            if sha256(body.getvalue()).hexdigest() == digest:
                return ""
        return CHANGED

    return differs


def differs_in_avro(body: bytes) -> Callable[[str], str]:
    """Compare a row that is an Avro body: the very bytes that were digested."""
    found = sha256(body).hexdigest()
    return lambda digest: "" if found == digest else CHANGED
