"""One record on one line: for people, or as JSON."""

from typing import Any

import orjson

from schemas.base import Record
from schemas.captures import Capture
from schemas.errors import DecodeError
from schemas.jsontext import parse
from streams.log.letter_list import dead_letter
from streams.log.reader import LogReader
from streams.log.record import Placed
from streams.log.terminal_text import clean, json_of, line, moment
from streams.log.topics import DEAD_LETTERS
from streams.views.gist import gist
from streams.views.report import letter_json

KEY = 32
"""Characters of a key in a human line."""


async def human_line(log: LogReader, placed: Placed) -> str:
    """Position, time, rollout, kind and summary of a record."""
    what, said = await _kind_and_gist(log, placed)
    _, partition, record = placed
    key = line((record.key or b"").decode(errors="replace"), KEY) or "-"
    return f"{partition}@{record.offset:<6} {moment(record.at)}  {key:<20} {what:<14} {said}"


async def json_line(log: LogReader, placed: Placed) -> str:
    """The record with its position, compact and redacted."""
    topic, partition, stored = placed
    whole: dict[str, Any] = {
        "topic": topic.name,
        "partition": partition,
        "offset": stored.offset,
        "at": stored.at,
        "key": None if stored.key is None else clean(stored.key.decode(errors="replace")),
    }
    if topic is DEAD_LETTERS:
        whole |= {"type": "DeadLetter", "letter": clean(letter_json(dead_letter(placed)))}
    else:
        try:
            record = await log.decode(placed)
            whole |= {"type": type(record).__name__, "record": _shown(record)}
        except DecodeError as error:
            whole |= {"type": None, "undecodable": line(str(error)), "bytes": len(stored.value or b"")}
    return orjson.dumps(whole).decode()


def _shown(record: Record) -> dict[str, Any]:
    """The JSON of a record; the body of a capture as the JSON that it is, or its length where this is a part of it."""
    if not isinstance(record, Capture):
        return json_of(record)
    try:
        body = parse(record.body or b"null")
    except ValueError:
        body = {"bytes": len(record.body)}
    shown: dict[str, Any] = clean(record.plain() | {"body": body})
    return shown


async def _kind_and_gist(log: LogReader, placed: Placed) -> tuple[str, str]:
    if placed.topic is DEAD_LETTERS:
        letter = dead_letter(placed)
        return "DeadLetter", line(f"{letter.letter.reason}: {letter.letter_id}: {letter.letter.message}", 160)
    try:
        record = await log.decode(placed)
    except DecodeError as error:
        return "undecodable", line(f"{len(placed.record.value or b'')} bytes: {error}", 160)
    return type(record).__name__, gist(record)
